"""A page with holes: `⟪name⟫` is filled, `⟪?name⟫…⟪/name⟫` is kept when a value is there,
`⟪!name⟫…⟪/name⟫` when not.

Pure. A text is split once, when a bundle is loaded; filling only joins. Values arrive escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_MARK = re.compile(r"⟪([?!/]?)([a-z_0-9]+)⟫")

Node = tuple[int, str, "tuple[Node, ...]"]
TEXT, SLOT, IF, UNLESS = range(4)


class SlotError(ValueError):
    """A section is not closed, or closed by another name."""


def split(source: str) -> tuple[Node, ...]:
    """Cut a text at its marks.

    Raises:
        SlotError: sections that do not nest.
    """
    stack: list[tuple[int, str, list[Node]]] = [(TEXT, "", [])]
    at = 0
    for match in _MARK.finditer(source):
        if match.start() > at:
            stack[-1][2].append((TEXT, source[at : match.start()], ()))
        at = match.end()
        sign, name = match[1], match[2]
        if sign == "":
            stack[-1][2].append((SLOT, name, ()))
        elif sign == "/":
            kind, opened, inner = stack.pop()
            if opened != name or not stack:
                raise SlotError(f"section {name!r} is closed, but {opened!r} is open")
            stack[-1][2].append((kind, name, tuple(inner)))
        else:
            stack.append((IF if sign == "?" else UNLESS, name, []))
    if len(stack) != 1:
        raise SlotError(f"section {stack[-1][1]!r} is not closed")
    if at < len(source):
        stack[0][2].append((TEXT, source[at:], ()))
    return tuple(stack[0][2])


def fill(nodes: tuple[Node, ...], values: Mapping[str, str]) -> str:
    """Join the parts; a value that is missing or empty leaves its hole and its sections out."""
    parts: list[str] = []
    _fill(nodes, values, parts)
    return "".join(parts)


def _fill(nodes: tuple[Node, ...], values: Mapping[str, str], parts: list[str]) -> None:
    for kind, text, inner in nodes:
        if kind == TEXT:
            parts.append(text)
        elif kind == SLOT:
            parts.append(values.get(text, ""))
        elif bool(values.get(text)) == (kind == IF):
            _fill(inner, values, parts)
