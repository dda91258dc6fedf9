"""Which sites' scripts may read the gateway's own answers (Fetch standard, CORS; WR-50). Pure.

An origin's answers are never touched: they carry the origin's own permissions.
"""

from __future__ import annotations

from proxy.gateway.answers import Answer
from proxy.gateway.exchange import Exchange
from proxy.gateway.plan import Site

_EXPOSED = b"Retry-After, X-Waiting-Room"


def readable(answer: Answer, exchange: Exchange, site: Site | None) -> Answer:
    """Let the scripts of an allowed origin read an answer; on such a host it varies by Origin."""
    if site is None or not site.allowed_origins:
        return answer
    varied = False
    headers = []
    for name, value in answer.headers:
        if name == b"access-control-allow-origin":
            return answer  # everybody may read it; of two such lines browsers take none
        if name == b"vary":
            value, varied = value + b", Origin", True
        headers.append((name, value))
    if not varied:
        headers.append((b"vary", b"Origin"))
    origin = exchange.found.get(b"origin")
    if origin in site.allowed_origins:
        headers += [
            (b"access-control-allow-origin", origin),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-expose-headers", _EXPOSED),
        ]
    return Answer(answer.status, headers, answer.body)
