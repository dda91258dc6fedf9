"""Whether another site's page made the browser send a request (cross-site request forgery). Pure.

`SameSite=Lax` keeps a visitor's cookie out of such a request, but not the answer's `Set-Cookie` out
of the browser: an answer to a form that another site posts could replace or delete the cookie that
holds the place (RFC 6265bis 5.7, top-level navigations). So who is asked here must not set one.
Where a room's pages come in frames (`SameSite=None; Partitioned`, WR-55) the cookie may come along;
then the request is the visitor's own as far as its place goes, and nothing is replaced.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from proxy.gateway.exchange import Exchange
from proxy.gateway.paths import BadHost, normal_host


def is_own_page(exchange: Exchange) -> bool:
    """Whether the request may come from a page of this very host, or from no page at all."""
    site = exchange.found.get(b"sec-fetch-site")
    if site is not None:
        return site in (b"same-origin", b"none")
    return _names_us(exchange)


def is_foreign_form(exchange: Exchange) -> bool:
    """Whether another site navigates here by an unsafe method, so that our cookie did not come.

    `same-site` is not foreign: its requests carry the cookie.
    """
    if exchange.is_safe or not exchange.is_navigation:
        return False
    site = exchange.found.get(b"sec-fetch-site")
    return site == b"cross-site" if site is not None else not _names_us(exchange)


def _names_us(exchange: Exchange) -> bool:
    """Judge by `Origin`, where a browser sends no `Sec-Fetch-Site` (old ones, and all on plain
    HTTP). None was sent: no browser, or no other site. `null` is anybody's."""
    origin = exchange.found.get(b"origin")
    if origin is None:
        return True
    try:
        named = normal_host(urlsplit(origin).netloc)
    except (BadHost, ValueError):
        return False
    return named in (exchange.host, exchange.visited_host)
