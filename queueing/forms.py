"""The room's form: what must be chosen is not preselected, and a template is checked on upload."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

from queueing.models import Room
from queueing.page_check import MAX_BYTES, check


class RoomForm(forms.ModelForm):  # type: ignore[type-arg]
    """Create or change a room. Errors of combinations come from `Room.clean`."""

    page_upload = forms.FileField(
        label="Own waiting page",
        required=False,
        help_text="An HTML template of your own with placeholders such as {{position}}, at most 256"
        " KB; docs/waiting-page.md has an example. It is checked when you save. Choose none to keep"
        " what is in use.",
    )
    page_remove = forms.BooleanField(
        label="Back to the built-in page",
        required=False,
        help_text="Removes the own page.",
    )

    class Meta:
        model = Room
        exclude = ["page_html", "version", "changed_at"]  # noqa: DJ006 - every field an operator has

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        shares = self.fields.get("shares")
        if isinstance(shares, forms.MultipleChoiceField):  # a page that only shows has none
            others = Room.objects.exclude(pk=self.instance.pk).order_by("id")
            shares.choices = [(room.pk, f"{room.name} ({room.pk})") for room in others]

    def clean_skip_currency(self) -> str:
        """Take small letters too."""
        return str(self.cleaned_data["skip_currency"]).strip().upper()

    def clean(self) -> dict[str, Any]:
        """Check an uploaded template; refuse upload and removal at once."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        upload = cleaned.get("page_upload")
        if upload and cleaned.get("page_remove"):
            self.add_error("page_remove", "Upload a page or remove it, not both.")
        elif upload:
            self._take(upload)
        elif cleaned.get("page_remove"):
            self.instance.page_html = ""
        return cleaned

    def _take(self, upload: UploadedFile[bytes]) -> None:
        raw = upload.read(MAX_BYTES + 1)
        problems = check(raw)
        for problem in problems:
            self.add_error("page_upload", f"Line {problem.line}: {problem.message}")
        if not problems:
            self.instance.page_html = raw.decode("utf-8")
