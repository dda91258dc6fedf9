"""The first-run form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import (
    password_validators_help_texts,
    validate_password,
)
from django.core.exceptions import ValidationError

from portal.setup_token import SHORTEST


class FirstRunForm(forms.Form):
    """Setup token, and who will administer Corvus."""

    token = forms.CharField(
        label="Setup token",
        min_length=SHORTEST,
        max_length=200,
        help_text="Corvus printed it when it started, after “setup_token=”.",
        widget=forms.TextInput(
            attrs={"autocomplete": "off", "autofocus": True, "spellcheck": "false"}
        ),
    )
    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[User.username_validator],
        help_text="Letters, digits and @ . + - _",
        widget=forms.TextInput(attrs={"autocomplete": "username"}),
    )
    password = forms.CharField(
        label="Password",
        strip=False,
        max_length=4096,
        help_text=" ".join(password_validators_help_texts()),
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    repeated = forms.CharField(
        label="Password, again",
        strip=False,
        max_length=4096,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )

    def clean(self) -> dict[str, Any]:
        """Check the password as Django does, and that both are the same."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        password, username = cleaned.get("password"), cleaned.get("username", "")
        if password and cleaned.get("repeated") not in (None, password):
            self.add_error("repeated", "The two passwords are not the same.")
        if password:
            try:
                validate_password(password, User(username=username))
            except ValidationError as error:
                self.add_error("password", error)
        if username and User.objects.filter(username=username).exists():
            self.add_error("username", "There is a user of this name already.")
        return cleaned
