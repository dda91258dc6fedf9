"""Forms of proxy hosts and of the settings page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django import forms

from proxy.effective import Declared, Effective
from proxy.gateway.conflicts import LABELS
from proxy.models import HostName, ProxyHost
from proxy.names import clean_names


class ProxyHostForm(forms.ModelForm):  # type: ignore[type-arg]
    """Create or change a proxy host; its names are text, one a line."""

    host_names = forms.CharField(
        label="Host names",
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        help_text="One a line, such as www.example.org. * answers for every name that no other"
        " host has.",
    )

    class Meta:
        model = ProxyHost
        fields = [
            "label",
            "origin",
            "preserve_host",
            "verify_origin",
            "path_case",
            "bypass",
            "assets",
            "public_assets",
            "streams",
            "ban_paths",
            "return_paths",
            "allowed_origins",
            "session_cookie",
        ]
        widgets = dict.fromkeys(
            [*LABELS, "allowed_origins"], forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            self.initial["host_names"] = "\n".join(n.name for n in self.instance.names.all())

    def clean_host_names(self) -> tuple[str, ...]:
        """Give the names in their one form; another host's name is refused here."""
        try:
            names = clean_names(self.cleaned_data["host_names"])
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        taken = HostName.objects.filter(name__in=names).exclude(host_id=self.instance.pk)
        if other := taken.select_related("host").first():
            raise forms.ValidationError(f"{other.name} belongs to the host “{other.host}” already.")
        return names


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the settings page."""

    setting: Declared
    text: str
    source: str
    saved: bool
    field: Any  # bound field, or None where the setting cannot be saved here
    reset: Any


class SettingsForm(forms.Form):
    """Every setting that can be saved; what is not changed is not saved."""

    def __init__(
        self, effective: Effective, saved: dict[str, str], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._effective = effective
        self._saved = saved
        for setting in effective.settings():
            if setting.savable:
                self.fields[setting.name] = _field(setting, self._shown(setting.name))
                if setting.name in saved:
                    self.fields[f"reset-{setting.name}"] = forms.BooleanField(
                        label=f"Give {setting.name} back", required=False
                    )

    def _shown(self, name: str) -> str:
        return self._saved.get(name, self._effective.text(name))

    def groups(self) -> Iterator[tuple[str, list[Row]]]:
        """Give the rows by group, in the order of the declarations."""
        groups: dict[str, list[Row]] = {}
        for setting in self._effective.settings():
            groups.setdefault(setting.group, []).append(self._row(setting))
        yield from groups.items()

    def _row(self, setting: Declared) -> Row:
        name = setting.name
        return Row(
            setting=setting,
            text=self._effective.text(name),
            source=str(self._effective.source(name)),
            saved=name in self._saved,
            field=self[name] if name in self.fields else None,
            reset=self[f"reset-{name}"] if f"reset-{name}" in self.fields else None,
        )

    def wishes(self) -> dict[str, str | None]:
        """Give what the operator changed: text to save, None to give back."""
        wanted: dict[str, str | None] = {}
        for name in self.fields:
            if name.startswith("reset-"):
                continue
            text = self.cleaned_data[name].strip()
            if self.cleaned_data.get(f"reset-{name}"):
                wanted[name] = None
            elif text != self._shown(name):
                wanted[name] = text
        return wanted


def _field(setting: Declared, text: str) -> forms.CharField:
    choices = setting.bounds.choices
    if setting.kind == "boolean":
        choices = ("true", "false")
        text = "true" if text.lower() in ("true", "yes", "on", "1") else "false"
    widget: forms.Widget = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    if choices:
        widget = forms.Select(choices=[(c, c) for c in choices])
    return forms.CharField(
        label=setting.name,
        required=False,
        max_length=4000,
        initial=text,
        widget=widget,
        help_text=setting.help,
    )
