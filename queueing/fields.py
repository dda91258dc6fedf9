"""What rooms are made of beside numbers and text: spans of time, prices, lists of other rooms.

Spans are stored as whole milliseconds and edited as `5m`; prices are decimal text.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.utils.text import capfirst

from queueing.durations import ALLOWED, format_duration, parse_duration
from queueing.prices import format_price, read_price


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


class PriceField(models.CharField):  # type: ignore[type-arg]
    """A price as its shortest decimal text, never a float; `0.50` and `0.5` are the same."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"max_length": 20, "default": "0", **kwargs})

    def clean(self, value: Any, model_instance: models.Model | None) -> Any:
        """Give the plain form; what is no price stays, for `config.problems` to refuse."""
        text = str(super().clean(value, model_instance)).strip()
        price = read_price(text)
        return text if price is None else format_price(price)


class RoomListField(models.JSONField):
    """The short names of other rooms; which there are is the form's and the service's business."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"default": list, "blank": True, **kwargs})

    def formfield(self, **kwargs: Any) -> Any:
        """Tick rooms; whoever makes the form fills in the choices."""
        options = {
            "label": capfirst(self.verbose_name),
            "help_text": self.help_text,
            "required": False,
            "widget": forms.CheckboxSelectMultiple,
        }
        return forms.MultipleChoiceField(**options)  # type: ignore[arg-type]
