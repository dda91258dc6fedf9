"""The published page bundle: loaded once, then one page in microseconds.

Pure. `queueing.page_builder` writes the document; `render` fills it for one visitor. What comes
from a visitor or an operator is escaped here, once, on its way into a hole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from queueing.pages.phrasing import Phrasing
from queueing.pages.slots import Node, SlotError, fill, split
from queueing.pages.values import Wording, live_values, notice_values, repost_values
from queueing.pages.view import IN_LINE, LIVE, PageState, PageView

FORMAT = 1
DIGEST_CHARACTERS = 20


class BundleError(ValueError):
    """The document cannot be used as a page bundle; the message names the part."""


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """One answer's body and headers; the status code is the gateway's."""

    body: bytes
    headers: list[tuple[bytes, bytes]]


HeaderLines = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Policies:
    """A page's headers, by whether other sites may show it in a frame (WR-55)."""

    own: HeaderLines
    framed: HeaderLines

    def of(self, view: PageView) -> list[tuple[bytes, bytes]]:
        """Give a fresh list."""
        return list(self.framed if view.embed else self.own)


@dataclass(frozen=True, slots=True)
class _Language:
    wording: Wording
    live: tuple[Node, ...]
    notice: tuple[Node, ...]
    repost: tuple[Node, ...]
    script: str  # the words that the page's script needs, as JSON for a data block
    helper: bytes  # the script that single-page applications load
    policies: Policies


@dataclass(frozen=True, slots=True)
class _Template:
    nodes: tuple[Node, ...]
    language: str
    policies: Policies


@dataclass(frozen=True, slots=True)
class PageBundle:
    """All pages in all languages, and perhaps an operator's own waiting page."""

    digest: str
    languages: tuple[str, ...]
    _languages: Mapping[str, _Language]
    _repost: Mapping[str, HeaderLines]
    _script: str
    _script_hash: str
    _template: _Template | None = None

    @classmethod
    def load(cls, raw: bytes) -> PageBundle:
        """Read a published bundle.

        Raises:
            BundleError: not JSON, another format, or a part is missing.
        """
        try:
            document: dict[str, Any] = json.loads(raw)
            if document.get("format") != FORMAT:
                raise BundleError(f"format {document.get('format')!r} is not {FORMAT}")
            again = security_policy(
                [document["repost_hash"]], [document["style_hash"]], submits=False
            )
            languages = {
                code: _language(code, part, document)
                for code, part in document["languages"].items()
            }
            missing = [
                s for s in PageState for x in languages.values() if s not in x.wording.states
            ]
            if missing or not languages:
                raise BundleError(f"no words for {missing[:1] or 'any language'}")
        except BundleError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, SlotError) as error:
            raise BundleError(f"the document is not a page bundle: {error!r}") from error
        return cls(
            digest=digest(raw),
            languages=tuple(languages),
            _languages=languages,
            _repost={code: page_headers(code, again) for code in languages},
            _script=document["js"],
            _script_hash=document["script_hash"],
        )

    def with_template(self, compiled: Mapping[str, Any] | None) -> PageBundle:
        """Give a bundle that shows an operator's own page (`compile_template`'s form) in line.

        Raises:
            BundleError: the compiled form is not one.
        """
        if compiled is None:
            return self
        try:
            source: str = compiled["template"]
            nodes = split(source.replace("⟪js⟫", self._script))
            language = str(compiled["language"])
            policies = _policies(
                language,
                [self._script_hash, *compiled["scripts"]],
                compiled["styles"],
                style_attributes=compiled["style_attributes"],
            )
        except (KeyError, TypeError, AttributeError, SlotError) as error:
            raise BundleError(f"the template is not a compiled one: {error!r}") from error
        return PageBundle(
            digest=self.digest,
            languages=self.languages,
            _languages=self._languages,
            _repost=self._repost,
            _script=self._script,
            _script_hash=self._script_hash,
            _template=_Template(nodes, language, policies),
        )

    def render(self, view: PageView, language: str) -> RenderedPage:
        """Fill one page; an unknown language gives the bundle's first."""
        if self._template is not None and view.state in IN_LINE:
            return self._render_template(self._template, view, language)
        code = language if language in self._languages else self.languages[0]
        part = self._languages[code]
        if view.state is PageState.REPOST:
            text = fill(part.repost, repost_values(view, part.wording))
            return RenderedPage(text.encode(), list(self._repost[code]))
        if view.state in LIVE:
            text = fill(part.live, live_values(view, part.wording))
        else:
            text = fill(part.notice, notice_values(view, part.wording))
        return RenderedPage(text.encode(), part.policies.of(view))

    def helper(self, language: str) -> bytes:
        """Give the script that single-page applications load, with a language's words."""
        code = language if language in self._languages else self.languages[0]
        return self._languages[code].helper

    def _render_template(self, template: _Template, view: PageView, language: str) -> RenderedPage:
        for code in (template.language, template.language.partition("-")[0], language):
            if code in self._languages:
                part = self._languages[code]
                break
        else:
            part = self._languages[self.languages[0]]
        values = live_values(view, part.wording) | {
            "w": part.script,
            "room_name": escape(view.room or view.site),
        }
        return RenderedPage(fill(template.nodes, values).encode(), template.policies.of(view))


def digest(raw: bytes) -> str:
    """Name a bundle by its content."""
    return hashlib.sha256(raw).hexdigest()[:DIGEST_CHARACTERS]


def data_block(text: str) -> str:
    """Make JSON safe inside a `<script type="application/json">` block."""
    return text.replace("<", "\\u003c")


def security_policy(
    scripts: list[str],
    styles: list[str],
    *,
    style_attributes: bool = False,
    submits: bool = True,
    ancestors: str = "'self'",
) -> str:
    """Give the page's own policy: nothing from elsewhere, inline parts only by their hashes.

    `submits=False` leaves `form-action` out: Chromium applies it also to where the answer of a form
    redirects to, and that is the site's to say.
    """
    attributes = "'unsafe-hashes' " if style_attributes else ""
    style = " ".join(f"'{value}'" for value in styles)
    script = " ".join(f"'{value}'" for value in scripts)
    form = "form-action 'self'; " if submits else ""
    return (
        "default-src 'none'; "
        f"style-src {attributes}{style or chr(39) + 'none' + chr(39)}; script-src {script}; "
        f"img-src data:; connect-src 'self'; {form}base-uri 'none'; frame-ancestors {ancestors}"
    )


def _policies(
    language: str, scripts: list[str], styles: list[str], *, style_attributes: bool = False
) -> Policies:
    def lines(ancestors: str) -> HeaderLines:
        csp = security_policy(
            scripts, styles, style_attributes=style_attributes, ancestors=ancestors
        )
        return page_headers(language, csp)

    return Policies(own=lines("'self'"), framed=lines("*"))


def page_headers(language: str, csp: str) -> HeaderLines:
    """Give every header that belongs to a page, whatever its state (WR-41)."""
    pairs = (
        ("content-type", "text/html; charset=utf-8"),
        ("content-language", language),
        ("content-security-policy", csp),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store, private"),
        ("vary", "Cookie, Accept, Accept-Language"),
        ("x-robots-tag", "noindex"),
    )
    return tuple((name.encode(), value.encode("latin-1")) for name, value in pairs)


def _language(code: str, part: Mapping[str, Any], document: Mapping[str, Any]) -> _Language:
    script = data_block(part["script"])
    once = {
        "⟪css⟫": document["css"],
        "⟪js⟫": document["js"],
        "⟪w⟫": script,
        "⟪repost⟫": document["repost"],
    }

    def page(name: str) -> tuple[Node, ...]:
        text: str = part["pages"][name]
        for mark, value in once.items():
            text = text.replace(mark, value)
        return split(text)

    wording = Wording(
        code=code,
        phrasing=Phrasing(part["locale"]["tag"], part["locale"]),
        states={
            state: tuple(escape(text) for text in texts) for state, texts in part["states"].items()
        },
        words={key: escape(text) for key, text in part["words"].items()},
        ahead={key: escape(text) for key, text in part["plurals"]["ahead"].items()},
        buy=escape(part["price"]["buy"]),
    )
    return _Language(
        wording=wording,
        live=page("live"),
        notice=page("notice"),
        repost=page("repost"),
        script=script,
        helper=document["helper"].replace("⟪words⟫", part["helper"]).encode(),
        policies=_policies(code, [document["script_hash"]], [document["style_hash"]]),
    )
