"""Spans of time in models and forms: stored as whole milliseconds, edited as `5m`."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

from queueing.durations import ALLOWED, format_duration, parse_duration


class DurationFormField(forms.CharField):
    """A text input that takes `15`, `15s`, `5m`, `1h`, `250ms` and gives milliseconds."""

    def __init__(self, **kwargs: Any) -> None:
        kwargs.pop("max_length", None)  # it would measure the number
        super().__init__(**kwargs)
        self.widget.attrs.setdefault("maxlength", "40")
        self.widget.attrs.setdefault("autocomplete", "off")
        self.widget.attrs.setdefault("class", "corvus-duration")

    def prepare_value(self, value: Any) -> Any:
        """Show stored milliseconds as people write them; leave what was typed as it is."""
        return format_duration(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        """Read the text; milliseconds that are a number already stay."""
        if isinstance(value, int):
            return value
        text = super().to_python(value)
        if not text:
            return None
        try:
            return parse_duration(text)
        except ValueError:
            raise ValidationError(
                f"“{text}” is not allowed: write {ALLOWED}.", code="invalid"
            ) from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare spans, not spellings: `300s` is `5m`."""
        try:
            return bool(self.to_python(initial) != self.to_python(data))
        except ValidationError:
            return True


class DurationField(models.PositiveBigIntegerField):  # type: ignore[type-arg]
    """Whole milliseconds in the database."""

    def formfield(self, *args: Any, **kwargs: Any) -> Any:
        """Edit it as text with a unit."""
        options = {"form_class": DurationFormField, "choices_form_class": None, **kwargs}
        options.pop("widget", None)
        return models.Field.formfield(self, *args, **options)
