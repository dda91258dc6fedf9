"""The gateway's own error answers: 400, 403, 404, 502, 504, 500 as page or JSON. Pure."""

from __future__ import annotations

from proxy.gateway.answers import NO_STORE, Answer, json_answer
from proxy.gateway.exchange import Exchange
from proxy.gateway.room_answers import page_language
from proxy.gateway.snapshot import GatewaySettings
from queueing.pages import PageBundle, PageState, PageView

_WORDS = {
    PageState.BAD_REQUEST: (400, "bad request"),
    PageState.BLOCKED: (403, "blocked"),
    PageState.NOT_FOUND: (404, "unknown host"),
    PageState.SERVER_ERROR: (500, "internal error"),
    PageState.BAD_GATEWAY: (502, "origin unreachable"),
    PageState.GATEWAY_TIMEOUT: (504, "origin too slow"),
}
ORIGIN_FAILURES = {502: PageState.BAD_GATEWAY, 504: PageState.GATEWAY_TIMEOUT}


def error_answer(
    exchange: Exchange, pages: PageBundle, settings: GatewaySettings, state: PageState
) -> Answer:
    """Tell the visitor what went wrong, in its language, with the id that the log has too."""
    status, words = _WORDS[state]
    if not exchange.is_navigation and settings.api_json:
        document = {"error": words, "status": status, "request_id": exchange.request_id}
        return json_answer(status, document)
    view = PageView(
        state=state,
        site=exchange.visited_host,
        unsafe=not exchange.is_safe,
        incident=exchange.request_id,
    )
    page = pages.render(view, page_language(exchange, pages, settings))
    known = {name for name, _ in page.headers}
    missing = [line for line in NO_STORE if line[0] not in known]
    return Answer(status, [*page.headers, *missing], page.body)
