"""What goes into each hole of a page, for one visitor in one language.

Pure. Every value leaves here escaped for HTML text and double-quoted attributes; the data block for
the page's script is JSON in which no `<` is left.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from queueing.pages.phrasing import Phrasing
from queueing.pages.view import (
    IN_LINE,
    REJOINABLE,
    RETRYING,
    PageState,
    PageView,
    local_address,
)

SLOW_REFRESH_S = 120
MIN_REFRESH_S = 5


@dataclass(frozen=True, slots=True)
class Wording:
    """One language's words, escaped, and its ways with numbers."""

    code: str
    phrasing: Phrasing
    states: Mapping[str, tuple[str, ...]]  # title, heading, text
    words: Mapping[str, str]
    ahead: Mapping[str, str]
    buy: str  # with a {price}

    def say(self, key: str, time: str) -> str:
        """Put a duration into a sentence."""
        return self.words[key].replace("{time}", time)


def live_values(view: PageView, wording: Wording) -> dict[str, str]:
    """Fill the page of a visitor who has, had or may have a place."""
    values = _common(view, wording)
    state, phrasing = view.state, wording.phrasing
    values["leave_url"] = escape(view.leave_url)
    values["rejoin_url"] = escape(view.rejoin_url)
    values["status_url"] = escape(view.status_url)
    if state in IN_LINE:
        values["in_line"] = "1"
        values["keep"] = wording.say("keep", phrasing.span(view.keep_s))
        _line_values(values, view, wording)
        if view.reason:
            values["reason"] = wording.words[view.reason]
        _price_values(values, view, wording)
    elif state is PageState.GRANTED:
        values["granted"] = "1"
        values["claim"] = wording.say("claim", phrasing.span(view.claim_s))
        values["extend_url"] = escape(view.extend_url)
    elif state in REJOINABLE:
        values["gone"] = "1"
        if state is PageState.MISSED and 0 < view.since_ms <= view.now_ms:
            elapsed = (view.now_ms - view.since_ms) / 1000
            values["since"] = wording.say("since", phrasing.span(elapsed))
    if state not in REJOINABLE:
        _refresh_values(values, view, wording, view.refresh_s)
    values["data"] = _data(view)
    return values


def notice_values(view: PageView, wording: Wording) -> dict[str, str]:
    """Fill the page of a state in which there is no place to show, or an error page."""
    values = _common(view, wording)
    values["incident"] = escape(view.incident)
    wait = max(view.retry_after_s, MIN_REFRESH_S)
    if view.state in RETRYING:
        values["retrying"] = "1"
        values["again"] = wording.say("again", wording.phrasing.span(wait))
        _refresh_values(values, view, wording, view.refresh_s and max(view.refresh_s, wait))
    elif view.state is PageState.BANNED and view.retry_after_s:
        values["opens"] = wording.say("opens", wording.phrasing.span(view.retry_after_s))
    if view.state is not PageState.BLOCKED and view.state not in _HOPELESS:
        values["retry"] = "1"
    if view.state is PageState.COOKIES:
        values["elsewhere"] = "1"
    if view.state is PageState.SHARED:
        values["join_url"] = escape(view.rejoin_url)
    data = {"state": view.state, "go": local_address(view.continue_url), "unsafe": view.unsafe}
    if view.state in RETRYING:
        data["retry"] = wait
    values["data"] = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return values


_HOPELESS = frozenset(
    {
        PageState.COOKIES_BROKEN,
        PageState.BAD_REQUEST,
        PageState.NOT_FOUND,
        PageState.TOO_LARGE,
        PageState.BANNED,
    }
)
"""Trying the same again cannot help, so no button offers it."""


def repost_values(view: PageView, wording: Wording) -> dict[str, str]:
    """Fill the page that sends a form once more, as this site's own (WR-47)."""
    fields = [
        f'<input type="hidden" name="{_attribute(name)}" value="{_attribute(value)}">'
        for name, value in view.fields
    ]
    return _common(view, wording) | {"fields": "\n".join(fields)}


def _attribute(text: str) -> str:
    # A browser would read a bare CR as LF (HTML, 13.2.3.5).
    return escape(text).replace("\r", "&#13;").replace("\n", "&#10;")


def _price_values(values: dict[str, str], view: PageView, wording: Wording) -> None:
    if not view.sells:
        return
    values["sells"] = "1"
    if view.skip is not None:
        price = wording.phrasing.money(view.skip.cost, view.skip.currency)
        values["skip_url"] = escape(view.skip.url)
        values["skip_cost"] = escape(price)
        values["buy"] = wording.buy.replace("{price}", escape(price))


def _common(view: PageView, wording: Wording) -> dict[str, str]:
    title, heading, lead = wording.states[view.state]
    site = escape(view.site or view.room)
    number = f"(#{wording.phrasing.number(view.position)}) " if _numbered(view) else ""
    return {
        "doc_title": f"{number}{title} — {site}" if site else title,
        "state": view.state.value,
        "heading": heading,
        "lead": lead,
        "site": site,
        "room": escape(view.room) if view.site and view.room != view.site else "",
        "message": escape(view.message),
        "go": escape(local_address(view.continue_url)),
        "language_url": escape(view.language_url),
        # The page of an unsent form says so in its heading.
        "unsafe": "1" if view.unsafe and view.state is not PageState.UNSENT_FORM else "",
    }


def _numbered(view: PageView) -> bool:
    return view.state in IN_LINE and view.position > 0


def _line_values(values: dict[str, str], view: PageView, wording: Wording) -> None:
    phrasing, words = wording.phrasing, wording.words
    if view.position > 0:
        values["position"] = phrasing.number(view.position)
        values["ahead"] = phrasing.number(view.ahead)
        values["ahead_text"] = (
            phrasing.plural(wording.ahead, view.ahead) if view.ahead > 0 else words["first"]
        )
    if view.ticket:
        values["ticket"] = phrasing.number(view.ticket)
    if view.waiting:
        values["waiting"] = phrasing.number(view.waiting)
    values["eta"] = _eta(view, wording)


def _eta(view: PageView, wording: Wording) -> str:
    words, moment = wording.words, wording.words["moment"]
    if view.eta is None:
        return words["unknown"]
    half = wording.phrasing.estimate(view.eta.p50, moment)
    most = wording.phrasing.estimate(view.eta.p90, moment)
    about = half if half == moment else wording.say("about", half)
    if most == half:
        return about
    return words["both"].replace("{about}", about).replace("{likely}", wording.say("likely", most))


def _refresh_values(values: dict[str, str], view: PageView, wording: Wording, seconds: int) -> None:
    values["refresh_url"] = escape(view.refresh_url)
    if seconds <= 0:
        values["refresh_off"] = "1"
        return
    seconds = max(seconds, MIN_REFRESH_S)
    values["refresh"] = str(seconds)
    values["every"] = wording.say("every", wording.phrasing.span(seconds))
    if seconds < SLOW_REFRESH_S:
        values["refresh_fast"] = "1"


def _data(view: PageView) -> str:
    eta = None if view.eta is None else {"p50": view.eta.p50, "p90": view.eta.p90}
    document = {
        "state": view.state,
        "site": view.site or view.room,
        "now": view.now_ms,
        "poll": view.poll_after,
        "claim": view.claim_s,
        "keep": view.keep_s,
        "position": view.position,
        "ahead": view.ahead,
        "eta": eta,
        "status": view.status_url,
        "beacon": view.beacon_url,
        "go": local_address(view.continue_url),
        "unsafe": view.unsafe,
    }
    if view.skip is not None:
        document["skip"] = view.skip.url
    return json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
