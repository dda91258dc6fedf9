"""An operator's own waiting page: what may stand in it, and its compiled form for the snapshot.

Pure. `check` names every problem with its line; `compile_template` turns a page without problems
into the form that `PageBundle.with_template` takes. See docs/waiting-page.md for the rules.
"""

from __future__ import annotations

import base64
import hashlib
import re
from bisect import bisect_right
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from queueing.contrast import unreadable, unreadable_declarations

MAX_BYTES = 256 * 1024
NUMBERS = ("position", "ahead", "waiting", "ticket")
TEXTS = ("ahead_text", "eta", "message", "site", "room", "keep", "heading", "lead", "skip_cost")
ADDRESSES = ("status_url", "leave_url", "check_url", "skip_url")
OF_CONCERT = {".Position": "position", ".SkipURL": "skip_url"}
KNOWN = (*NUMBERS, *TEXTS, *ADDRESSES)
LIVE = frozenset({"position", "ahead", "waiting", "ahead_text", "eta", "skip_cost"})
"""Kept up to date by the page's script where they stand in text."""
SLOT_OF = {"room": "room_name", "check_url": "go"}

_PLACEHOLDER = re.compile(r"\{\{\s*(.*?)\s*\}\}", re.DOTALL)
_URL_ATTRIBUTES = frozenset(
    {"src", "href", "action", "formaction", "poster", "data", "xlink:href", "background", "cite"}
    | {"srcset", "imagesrcset", "ping", "manifest"}
)
_REFUSED_TAGS = frozenset({"iframe", "object", "embed", "base", "frame", "frameset", "applet"})
_CSS_FETCH = re.compile(r"@import|url\(\s*['\"]?\s*(?!data:|#)|image-set\(", re.IGNORECASE)
_QUOTED = re.compile(r"=\s*(?:\"[^\"]*\"|'[^']*')")
_UNSEEN = (
    ".corvus-unseen{position:absolute;width:1px;height:1px;margin:-1px;overflow:hidden;"
    "clip-path:inset(50%)}"
)
_HEAD = (
    '⟪?refresh⟫<noscript><meta http-equiv="refresh" content="⟪refresh⟫;url=⟪go⟫"></noscript>'
    f"⟪/refresh⟫<style>{_UNSEEN}</style>"
)
_TAIL = (
    '<p id="say" class="corvus-unseen" role="status" aria-live="polite" aria-atomic="true"></p>'
    '<script type="application/json" id="d">⟪data⟫</script>'
    '<script type="application/json" id="w">⟪w⟫</script><script>⟪js⟫</script>'
)


@dataclass(frozen=True, slots=True, order=True)
class TemplateProblem:
    """One reason why a page is refused; lines count from 1."""

    line: int
    message: str


def check(html: bytes | str) -> list[TemplateProblem]:
    """Give every problem of an operator's page, by line; none = it may be used."""
    raw = html.encode("utf-8", "surrogatepass") if isinstance(html, str) else html
    if len(raw) > MAX_BYTES:
        size = f"{len(raw):,} bytes is too large: at most {MAX_BYTES:,} are allowed."
        return [TemplateProblem(1, size)]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return [TemplateProblem(line, f"byte {error.start} is not UTF-8: save the page as UTF-8.")]
    return sorted(_Reading(_newlines(text)).problems)


def compile_template(html: bytes | str) -> dict[str, Any]:
    """Give the JSON-able form that goes into the snapshot.

    Raises:
        ValueError: `check` finds a problem; the message is the first one.
    """
    for problem in check(html):
        raise ValueError(f"line {problem.line}: {problem.message}")
    text = html if isinstance(html, str) else html.decode("utf-8")
    reading = _Reading(_newlines(text))
    return {
        "template": reading.with_slots(),
        "language": reading.language,
        "scripts": [_hash(body) for body in reading.scripts],
        "styles": [_hash(body) for body in (*reading.styles, _UNSEEN)],
        "style_attributes": reading.has_style_attributes,
    }


def _newlines(text: str) -> str:
    # A browser reads CRLF as LF before it hashes an inline part (HTML, 13.2.3.5).
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _named(inner: str) -> str | None:
    name = OF_CONCERT.get(inner, inner)
    return name if name in KNOWN else None


class _Reading(HTMLParser):
    """One pass over a page: where its parts stand, and what is wrong with them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=False)
        self.text = text
        self.problems: list[TemplateProblem] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.has_style_attributes = False
        self.language = ""
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self._spans: list[tuple[int, int, str]] = []  # start, end, context
        self._inside: list[str] = []
        self._raw: tuple[str, str, int] | None = None  # tag, type, offset of its content
        self._head_at = self._body_end = -1
        self._title = ""
        self.feed(text)
        self.close()
        self._finish()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check a tag's attributes and note where it stands."""
        source = self.get_starttag_text() or ""
        start = self._offset()
        self._spans.append((start, start + len(source), "tag"))
        values = {name: value or "" for name, value in attrs}
        if tag == "html":
            self.language = values.get("lang", "").strip()
        if tag == "head":
            self._head_at = start + len(source)
        if tag in _REFUSED_TAGS:
            self._refuse(f"<{tag}> is not allowed in a waiting page.")
        if tag == "meta" and values.get("http-equiv", "").strip().lower() == "refresh":
            self._refuse(
                "a refresh of its own is not allowed: Corvus adds one that can be stopped."
            )
        if "{{" in _QUOTED.sub("", source):
            self._refuse("a placeholder in a tag must stand inside a quoted attribute value.")
        for name, value in values.items():
            self._attribute(tag, name, value)
        if tag in ("script", "style"):
            self._raw = (tag, values.get("type", "").strip().lower(), start + len(source))
        if tag in ("title", "textarea"):
            self._inside.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Treat `<x/>` as `<x>`, as browsers do for HTML elements."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        """Collect what an inline script or style held."""
        if self._raw and self._raw[0] == tag:
            name, kind, begin = self._raw
            self._raw = None
            self._inline(name, kind, self.text[begin : self._offset()])
        if tag == "body":
            self._body_end = self._offset()
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data: str) -> None:
        """Note a run of text."""
        if self._raw:
            return
        start = self._offset()
        self._spans.append((start, start + len(data), "plain" if self._inside else "text"))
        if "title" in self._inside:
            self._title += data

    def with_slots(self) -> str:
        """Give the page with holes in the place of placeholders, and with Corvus's own parts."""
        pieces: list[tuple[int, int, str]] = [
            (self._head_at, self._head_at, _HEAD),
            (self._end(), self._end(), _TAIL),
        ]
        for match in _PLACEHOLDER.finditer(self.text):
            context, name = self._context(match.start()), _named(match[1])
            if name is None or context == "":
                continue
            slot = f"⟪{SLOT_OF.get(name, name)}⟫"
            if context == "text" and name in LIVE:
                slot = f'<span data-c="{name}">{slot}</span>'
            pieces.append((match.start(), match.end(), slot))
        out, at = [], 0
        for start, end, new in sorted(pieces):
            out += [self.text[at:start], new]
            at = end
        return "".join([*out, self.text[at:]])

    def _attribute(self, tag: str, name: str, value: str) -> None:
        placeholders = [m[1] for m in _PLACEHOLDER.finditer(value)]
        if name.startswith("on"):
            self._refuse(
                f"the attribute {name} does not run here: use addEventListener in a script."
            )
        elif name == "style":
            self.has_style_attributes = True
            self.styles.append(value)
            if placeholders:
                self._refuse("a placeholder in a style attribute is not allowed.")
            self._css(value)
            if faint := unreadable_declarations(value):
                self._refuse(faint)
        elif name in _URL_ATTRIBUTES:
            self._address(tag, name, value.strip(), placeholders)

    def _address(self, tag: str, name: str, value: str, placeholders: list[str]) -> None:
        if placeholders:
            whole = _PLACEHOLDER.fullmatch(value)
            if not whole or (_named(whole[1]) or "status_url") not in ADDRESSES:
                self._refuse(
                    f"{name}=“{value}”: an address is one whole placeholder:"
                    f" {', '.join(ADDRESSES)}."
                )
            return
        scheme = value.partition(":")[0].lower() if ":" in value.partition("/")[0] else ""
        if scheme in ("javascript", "vbscript") or (scheme == "data" and tag != "img"):
            if tag == "link" and scheme == "data":
                return
            self._refuse(f"{name}=“{value[:60]}” is not allowed.")
        elif (
            not value
            or value.startswith(("data:", "#"))
            or (tag in ("a", "area") and name == "href")
        ):
            return
        else:
            self._refuse(
                f"{name}=“{value[:60]}” would be fetched: put it into the page, as inline style or"
                " script or as a data: image. Requests to the site would have to wait in line too."
            )

    def _inline(self, tag: str, kind: str, body: str) -> None:
        line = self._line(self._offset() - len(body))
        if _PLACEHOLDER.search(body):
            self.problems.append(
                TemplateProblem(
                    line,
                    f"a placeholder inside <{tag}> is not allowed: put it into a data- attribute"
                    " and read it from there.",
                )
            )
        if tag == "style":
            self.styles.append(body)
            self._css(body, line)
            for offset, faint in unreadable(body):
                at = line + body.count("\n", 0, offset)
                self.problems.append(TemplateProblem(at, faint))
        elif kind in ("", "text/javascript", "module", "application/javascript"):
            self.scripts.append(body)

    def _css(self, body: str, line: int | None = None) -> None:
        for match in _CSS_FETCH.finditer(body):
            at = (line or self.getpos()[0]) + body.count("\n", 0, match.start())
            self.problems.append(
                TemplateProblem(at, "the style fetches a file: use url(data:…) or leave it out.")
            )

    def _finish(self) -> None:
        shown = set()
        for match in _PLACEHOLDER.finditer(self.text):
            if self._context(match.start()) == "":
                continue
            name = _named(match[1])
            if name is None:
                allowed = ", ".join((*KNOWN, *OF_CONCERT))
                self.problems.append(
                    TemplateProblem(
                        self._line(match.start()),
                        f"the placeholder {{{{{match[1]}}}}} is not known; allowed are {allowed}.",
                    )
                )
            shown.add(name)
        for mark in re.finditer("[⟪⟫]", self.text):
            line = self._line(mark.start())
            self.problems.append(TemplateProblem(line, f"the character {mark[0]} is reserved."))
        if self._raw:
            line = self._line(self._raw[2])
            self.problems.append(TemplateProblem(line, f"<{self._raw[0]}> is not closed."))
        if not re.fullmatch(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*", self.language):
            self.problems.append(
                TemplateProblem(
                    1, f"<html lang=“{self.language}”>: name the page's language, as en."
                )
            )
        if self._head_at < 0:
            self.problems.append(TemplateProblem(1, "the page needs a <head>."))
        if not self._title.strip():
            self.problems.append(
                TemplateProblem(1, "the page needs a <title> that says something.")
            )
        if not shown & {"position", "ahead", "ahead_text"}:
            self.problems.append(
                TemplateProblem(
                    1, "the page must show the place: {{position}}, {{ahead}} or {{ahead_text}}."
                )
            )

    def _refuse(self, message: str) -> None:
        self.problems.append(TemplateProblem(self.getpos()[0], message))

    def _offset(self) -> int:
        line, column = self.getpos()
        return self._lines[line - 1] + column

    def _line(self, offset: int) -> int:
        return bisect_right(self._lines, offset)

    def _end(self) -> int:
        return self._body_end if self._body_end >= 0 else len(self.text)

    def _context(self, offset: int) -> str:
        at = bisect_right(self._spans, (offset, len(self.text) + 1, "")) - 1
        if at < 0:
            return ""
        start, end, context = self._spans[at]
        return context if start <= offset < end else ""
