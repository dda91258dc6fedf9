"""The script that single-page applications load from the gateway (WR-50). Pure.

The script itself is `templates/waiting/helper.js`; the page bundle carries it with each language's
words. See docs/single-page-apps.md.
"""

from __future__ import annotations

import gzip
import re
from urllib.parse import parse_qs

from proxy.gateway.answers import Answer
from proxy.gateway.exchange import Exchange
from queueing.pages import PageBundle, choose_language

_GZIP = re.compile(rb"(?:^|[\s,])gzip\s*(?:,|$|;\s*q\s*=\s*(?:1|0\.[0-9]*[1-9]))", re.IGNORECASE)


def helper_answer(exchange: Exchange, pages: PageBundle, accepted: bytes) -> Answer:
    """Give the script in the language of `?lang=`, else of the browser.

    `accepted` is the request's `Accept-Encoding`; whoever takes gzip gets it (RFC 9110 12.5.3).
    """
    query = parse_qs(exchange.query[:200].decode("latin-1"))
    language = choose_language(
        exchange.found.get(b"accept-language", b"").decode("latin-1"),
        query.get("lang", [""])[0],
        pages.languages,
        pages.languages[0],
    )
    headers = [
        (b"content-type", b"text/javascript; charset=utf-8"),
        (b"content-language", language.encode()),
        (b"cache-control", b"public, max-age=3600"),
        (b"vary", b"Accept-Language, Accept-Encoding"),
        (b"access-control-allow-origin", b"*"),
        (b"cross-origin-resource-policy", b"cross-origin"),
        (b"x-content-type-options", b"nosniff"),
    ]
    script = pages.helper(language)
    if _GZIP.search(accepted):
        return Answer(
            200, [*headers, (b"content-encoding", b"gzip")], gzip.compress(script, 9, mtime=0)
        )
    return Answer(200, headers, script)
