"""Everything that can go wrong between the gateway and an origin, as one tree.

Each class knows the status that the visitor gets (`status`). The messages are for the log: they
name the origin and what it did, and hold nothing that a visitor sent.
"""

from __future__ import annotations


class OriginError(Exception):
    """The origin gave no usable answer.

    Before the response headers it becomes an error answer with `status`; after them the visitor's
    connection is cut (`proxy.gateway.forward`).
    """

    status = 502


class OriginUnreachable(OriginError):
    """No connection: name not found, no route, TLS refused, or closed before it answered."""


class OriginRefused(OriginUnreachable):
    """The origin's machine answered, and nobody listens on the port."""


class OriginTimeout(OriginError):
    """The connection, a free place in the pool, or the response headers took too long."""

    status = 504


class OriginProtocolError(OriginError):
    """The answer is no HTTP/1, its head too large, or its length ambiguous (RFC 9112 6.3)."""


class OriginTruncated(OriginProtocolError):
    """The connection ended inside the body: what was sent on so far is incomplete."""
