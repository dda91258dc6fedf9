"""The forms of first run and sign-in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.password_validation import (
    password_validators_help_texts,
    validate_password,
)
from django.core.exceptions import ValidationError

from abuse.addresses import ClientFinder, TrustedNetworks
from portal.setup_token import SHORTEST
from portal.sign_in import WINDOW_S, SignIn


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


class SignInForm(AdminAuthenticationForm):
    """The admin's form, which looks at no password after too many tries."""

    def clean(self) -> dict[str, Any]:
        """Check the password unless it was tried too often (`portal.sign_in`)."""
        sign_in = SignIn(self.cleaned_data.get("username", ""), self._network())
        if not sign_in.may_try():
            raise ValidationError(
                f"Too many tries. Wait {WINDOW_S // 60} minutes and try again.", code="throttled"
            )
        cleaned: dict[str, Any] = super().clean()
        sign_in.succeeded()
        return cleaned

    def _network(self) -> str:
        """Whom the tries are counted against, behind the operator's own proxies too."""
        meta = self.request.META if self.request else {}
        finder = ClientFinder(TrustedNetworks(settings.TRUSTED_PROXIES))
        chain = meta.get("HTTP_X_FORWARDED_FOR", "").encode("latin-1", "replace")
        return finder.find(meta.get("REMOTE_ADDR") or None, (chain,) if chain else ()).client_key
