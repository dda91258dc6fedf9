"""A pseudo-language: every word accented and 40 % longer, to find fixed widths and fixed words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from queueing import page_words

_PLAIN = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ACCENTED = "åƀçđéƒǧħíǰķłɱñøƥɋřšŧüṽŵẋýžÅƁÇĐÉƑǦĦÍǰĶŁṀÑØƤɊŘŠŦÜṼŴẊÝŽ"
_TABLE = str.maketrans(_PLAIN, _ACCENTED)
_WORDS = ("line_states", "closed_states", "error_states", "live_words", "script_words", "labels")


def pseudo(text: str) -> str:
    """Give the accented, longer form; `{holes}` stay."""
    parts = re.split(r"(\{.*?\})", text)
    accented = "".join(p if p.startswith("{") else p.translate(_TABLE) for p in parts)
    return f"⟦{accented}{'~' * (len(text) * 2 // 5 - 2)}⟧"


def _stretch(value: Any) -> Any:
    if isinstance(value, str):
        return pseudo(value)
    if isinstance(value, tuple):
        return tuple(_stretch(v) for v in value)
    return {key: _stretch(v) for key, v in value.items()}


@contextmanager
def pseudo_words() -> Iterator[None]:
    """Make the builder see the pseudo-language instead of English."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _WORDS:
            words = getattr(page_words, name)
            patch.setattr(page_words, name, lambda words=words: _stretch(words()))
        ahead = page_words.plurals()["ahead"]
        patch.setattr(page_words, "plurals", lambda: {"ahead": lambda n: pseudo(ahead(n))})
        yield
