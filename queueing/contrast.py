"""Whether a style's text can be read: colours that one rule sets together (WCAG 2.2, 1.4.3). Pure.

What several rules, variables or a picture make together only a browser can tell; it is not judged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

ENOUGH, ENOUGH_IF_LARGE = 4.5, 3.0
LARGE_PX, LARGE_BOLD_PX = 24.0, 18.66

_RULE = re.compile(r"\{([^{}]*)\}")
_DECLARATION = re.compile(r"(?:^|;)\s*([a-zA-Z-]+)\s*:\s*([^;]+)")
_HEX = re.compile(r"#([0-9a-f]{3}|[0-9a-f]{6})")
_RGB = re.compile(r"rgb\(\s*(\d{1,3})[\s,]+(\d{1,3})[\s,]+(\d{1,3})\s*\)")
_PX = re.compile(r"(\d+(?:\.\d+)?)(px|rem|em)")
_NAMES = {
    **{"black": "#000000", "white": "#ffffff", "gray": "#808080", "grey": "#808080"},
    **{"silver": "#c0c0c0", "red": "#ff0000", "green": "#008000", "blue": "#0000ff"},
    **{"yellow": "#ffff00", "orange": "#ffa500", "navy": "#000080", "teal": "#008080"},
}
_BOLD = frozenset({"bold", "bolder", "700", "800", "900"})


class Colour(NamedTuple):
    """A colour without transparency, 0 to 255 each."""

    red: int
    green: int
    blue: int

    def __str__(self) -> str:
        return f"#{self.red:02x}{self.green:02x}{self.blue:02x}"


def ratio(first: Colour, second: Colour) -> float:
    """Give the contrast ratio, 1 to 21 (WCAG 2.2, “contrast ratio”)."""
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def unreadable(css: str) -> Iterator[tuple[int, str]]:
    """Give offset and complaint of each rule whose text colour fails on its own background."""
    for rule in _RULE.finditer(css):
        if problem := unreadable_declarations(rule[1]):
            yield rule.start(), problem


def unreadable_declarations(text: str) -> str:
    """Give the complaint of one rule's declarations, or of a style attribute; "" = none."""
    said = {name.lower(): _value(value) for name, value in _DECLARATION.findall(text)}
    ink = read_colour(said.get("color", ""))
    ground = read_colour(said.get("background-color", said.get("background", "")))
    if ink is None or ground is None:
        return ""
    enough = ENOUGH_IF_LARGE if _is_large(said) else ENOUGH
    found = ratio(ink, ground)
    if found >= enough:
        return ""
    shown = int(found * 100) / 100  # never rounded up to what would do
    return (
        f"the text colour {ink} on {ground} has a contrast of {shown:.2f}:1; at least"
        f" {enough:g}:1 is needed, and {nearest(ink, ground, enough)} is the nearest that has it."
    )


def nearest(ink: Colour, ground: Colour, enough: float) -> Colour:
    """Give the colour nearest to `ink`, darker or lighter, that is readable on `ground`."""
    for step in range(256):
        for end in (0, 255):
            moved = Colour(*(round(part + (end - part) * step / 255) for part in ink))
            if ratio(moved, ground) >= enough:
                return moved
    raise AssertionError("black or white is readable on every colour")


def read_colour(text: str) -> Colour | None:
    """Read an opaque colour as style sheets write it; None when it is anything else."""
    text = _NAMES.get(text, text)
    if found := _HEX.fullmatch(text):
        digits = found[1] if len(found[1]) == 6 else "".join(2 * digit for digit in found[1])
        return Colour(*bytes.fromhex(digits))
    if found := _RGB.fullmatch(text):
        return Colour(*(min(255, int(part)) for part in found.groups()))
    return None


def _value(text: str) -> str:
    return text.replace("!important", "").strip().lower()


def _is_large(said: dict[str, str]) -> bool:
    size = _PX.fullmatch(said.get("font-size", ""))
    if size is None:
        return False
    pixels = float(size[1]) * (1 if size[2] == "px" else 16)
    return pixels >= (LARGE_BOLD_PX if said.get("font-weight") in _BOLD else LARGE_PX)


def _luminance(colour: Colour) -> float:
    parts = (part / 255 for part in colour)
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
