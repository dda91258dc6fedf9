"""One multiplexed connection to the store, with automatic pipelining.

Owns the socket, AUTH and SELECT, time-outs, reconnecting and the one safe retry. It knows no key and no
script: those are `queueing.store`'s. No Django and no redis-py: one call costs 16–18 µs of CPU here
against 175 µs through the stock pool (docs/decisions/0003-store-connection.md).
"""

from __future__ import annotations


class StoreError(Exception):
    """The store did not do what was asked."""


class StoreUnreachable(StoreError):
    """No answer: refused, cut, or too slow, also on one fresh connection."""


class StoreBusy(StoreError):
    """The store answers but cannot work now: out of memory, read-only, loading, or busy with a script."""


class StoreFault(StoreError):
    """The store refused the call itself: a wrong command, a script error, a wrong password."""


Word = bytes | str | int | float
Reply = object  # int, bytes, None, or a list of replies


class Connection:
    """A lazily opened, self-healing connection; one for each event loop is enough for a process."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = 1.0,
        connect_timeout_s: float = 1.0,
        max_in_flight: int = 2048,
    ) -> None:
        """Take `redis://`, `rediss://` or `unix://` as redis-py spells them; opens nothing yet."""
        raise NotImplementedError

    async def call(self, *words: Word, repeatable: bool = False) -> Reply:
        """Send one command and give its reply.

        A call is repeated once, on a fresh connection, when it was certainly not sent, or when it is
        `repeatable` and its reply was lost.

        Raises:
            StoreUnreachable: no connection, no answer within `timeout_s`, or the answer was lost.
            StoreBusy: OOM, READONLY, LOADING, BUSY, MASTERDOWN, TRYAGAIN, CLUSTERDOWN.
            StoreFault: any other error reply.
        """
        raise NotImplementedError

    async def close(self) -> None:
        """Close the socket; calls in flight fail with `StoreUnreachable`."""
        raise NotImplementedError
