"""Numbers, plurals and durations in one language, from the data that the bundle carries.

Pure. The page's script says the same things with `Intl`; a test holds the two together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from babel import Locale
from babel.numbers import format_currency

_TOUCHING = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
"""Where a currency's letters touch a digit; CLDR's currencySpacing, which Babel does not apply."""


class Phrasing:
    """One language's ways with numbers."""

    def __init__(self, code: str, data: Mapping[str, Any]) -> None:
        """Take the `locale` part of a bundle's language."""
        self._digits = str.maketrans("0123456789", data["digits"])
        self._plain = data["digits"] == "0123456789"
        self._group: str = data["group"]
        self._ungrouped_below = 10 ** (3 + int(data["min_group"]) - 1)
        self._units: Mapping[str, Mapping[str, str]] = data["units"]
        self._join: str = data["join"]
        self._locale = Locale.parse(code.replace("-", "_"))
        self.category = lru_cache(maxsize=8192)(self._locale.plural_form)

    def number(self, value: int) -> str:
        """Write a whole number with the language's digits and grouping."""
        text = str(value) if value < self._ungrouped_below else f"{value:,}"
        text = text.replace(",", self._group)
        return text if self._plain else text.translate(self._digits)

    def money(self, amount: str, currency: str) -> str:
        """Write a decimal amount of an ISO 4217 currency: `€1,234.50`, `1.234,50 €`."""
        value = Decimal(amount)
        text = format_currency(
            value,
            currency,
            locale=self._locale,
            group_separator=value >= self._ungrouped_below,
            numbering_system="default",
        )
        text = _TOUCHING.sub("\u00a0", text)
        return text if self._plain else text.translate(self._digits)

    def plural(self, forms: Mapping[str, str], value: int) -> str:
        """Choose the form for `value` and put the number into it."""
        form = forms.get(self.category(value)) or forms["other"]
        return form.replace("{count}", self.number(value))

    def span(self, seconds: float) -> str:
        """Say a known length of time: `45 seconds`, `10 minutes`, `1 hour, 30 minutes`."""
        whole = max(1, int(seconds))
        if whole < 60 or (whole < 120 and whole % 60):
            return self._unit("second", whole)
        return self._clock(whole // 60)

    def estimate(self, seconds: float, moment: str) -> str:
        """Say an uncertain length of time, rounded up to 1, 5 or 15 minutes; below one `moment`."""
        if seconds < 60:
            return moment
        minutes = -int(-seconds // 60)
        step = 1 if minutes <= 10 else 5 if minutes <= 60 else 15
        return self._clock(-(-minutes // step) * step)

    def _clock(self, minutes: int) -> str:
        hours, rest = divmod(minutes, 60)
        if not hours:
            return self._unit("minute", rest)
        if not rest:
            return self._unit("hour", hours)
        first, second = self._unit("hour", hours), self._unit("minute", rest)
        return self._join.replace("{0}", first).replace("{1}", second)

    def _unit(self, unit: str, value: int) -> str:
        forms = self._units[unit]
        form = forms.get(self.category(value)) or forms["other"]
        return form.replace("{0}", self.number(value))
