"""One multiplexed connection to the store, with automatic pipelining.

Owns the socket, AUTH and SELECT, time-outs, reconnecting and the one safe retry. It knows no key
and no script: those are `queueing.store`'s. No Django and no redis-py: one call costs a tenth of
the CPU of the stock asyncio pool (docs/decisions/0003-store-connection.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import hiredis

Word = str | int | float | bytes
Reply = Any  # int, bytes, None, or a list of replies

_WRONG_SERVER = frozenset(["READONLY", "MASTERDOWN", "LOADING"])
_BUSY = _WRONG_SERVER | {"OOM", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MISCONF", "NOREPLICAS"}


class StoreError(Exception):
    """The store did not do what was asked."""


class StoreUnreachable(StoreError):
    """No answer: refused, cut, or too slow, also on one fresh connection."""


class StoreBusy(StoreError):
    """The store answers but cannot work now: out of memory, read-only, loading, busy, …"""


class StoreFault(StoreError):
    """The store refused the call itself: a wrong command, a script error, a wrong password."""


class ScriptMissing(StoreFault):
    """The store does not know the script of this digest (it was restarted or flushed)."""


class _Lost(Exception):
    """The connection broke under a call; `again` tells when the call may be sent once more."""

    def __init__(self, why: str, again: _Again) -> None:
        super().__init__(why)
        self.again = again


class _Again(Enum):
    ALWAYS = auto()  # the store cannot have seen it
    IF_REPEATABLE = auto()  # only the reply may be lost
    NEVER = auto()  # the store is there but too slow: asking twice makes it slower


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the store listens and how to log in, as read from a URL."""

    path: str = ""  # unix socket; else host and port
    host: str = ""
    port: int = 6379
    username: str = ""
    password: str = ""
    database: int = 0
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        return self.path or f"{self.host}:{self.port}"


def parse_url(url: str) -> Address:
    """Read `redis://`, `rediss://` or `unix://` as redis-py spells them.

    Options: `db`; with `rediss://` also `ssl_cert_reqs=none|required` and `ssl_ca_certs=<file>`.

    Raises:
        ValueError: another scheme, or a database that is no number; the password is not repeated.
    """
    parts = urlsplit(url)
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    username, password = unquote(parts.username or ""), unquote(parts.password or "")
    number = options.get("db", "0" if parts.scheme == "unix" else parts.path.strip("/") or "0")
    if not number.isascii() or not number.isdigit():
        raise ValueError(f"store URL: the database {number!r} is not allowed: use a number from 0")
    if parts.scheme == "unix":
        return Address(
            path=unquote(parts.path), database=int(number), username=username, password=password
        )
    if parts.scheme not in ("redis", "rediss"):
        raise ValueError(
            f"store URL: the scheme {parts.scheme!r} is not allowed: use redis, rediss or unix"
        )
    return Address(
        host=parts.hostname or "localhost",
        port=parts.port or 6379,
        database=int(number),
        tls=_tls(options) if parts.scheme == "rediss" else None,
        username=username,
        password=password,
    )


def _tls(options: dict[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.get("ssl_ca_certs"))
    if options.get("ssl_cert_reqs") == "none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _error(reply: hiredis.ReplyError) -> StoreError:
    text = str(reply)
    word = text.partition(" ")[0]
    if word in _BUSY:
        return StoreBusy(text)
    return ScriptMissing(text) if word == "NOSCRIPT" else StoreFault(text)


def _pack(words: tuple[Word, ...]) -> bytes:
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # its stub names one word only
    return packed


class _Link(asyncio.Protocol):
    """One open socket: commands go out together once per loop turn, replies come back in order."""

    def __init__(self, timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout_s = timeout_s
        self._reader = hiredis.Reader()
        self._waiting: deque[tuple[asyncio.Future[Reply], float]] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._watch: asyncio.TimerHandle | None = None
        self.alive = True

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def send(self, packed: bytes) -> asyncio.Future[Reply]:
        """Queue one packed command; the future ends in a reply, a `StoreError` or `_Lost`."""
        future: asyncio.Future[Reply] = self._loop.create_future()
        self._waiting.append((future, self._loop.time() + self._timeout_s))
        if not self._out:
            self._loop.call_soon(self._flush)
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout_s, self._check)
        self._out.append(packed)
        return future

    def _flush(self) -> None:
        if self._transport is not None and self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def _check(self) -> None:
        """Break the link when the oldest call is overdue: all later ones stand behind it."""
        self._watch = None
        if not self._waiting:
            return
        deadline = self._waiting[0][1]
        if deadline <= self._loop.time():
            self.abort(f"no answer within {self._timeout_s:g} s", _Again.NEVER)
            return
        self._watch = self._loop.call_at(deadline, self._check)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a fact of asyncio, for typing
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                self._settle(reply)
        except hiredis.ProtocolError as error:
            self.abort(f"the answer is not RESP: {error}")

    def _settle(self, reply: Reply) -> None:
        if not self._waiting:
            self.abort("an answer without a question")
            return
        future, _ = self._waiting.popleft()
        error = _error(reply) if isinstance(reply, hiredis.ReplyError) else None
        if not future.done():
            if error is None:
                future.set_result(reply)
            else:
                future.set_exception(error)
        if error is not None and str(error).partition(" ")[0] in _WRONG_SERVER:
            self.alive = False  # after a fail-over the address leads elsewhere: look it up again
            self._close_when_idle()
        elif not self.alive:
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if not self._waiting and self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._break(str(error or "the store closed the connection"))

    def abort(self, why: str, again: _Again = _Again.IF_REPEATABLE) -> None:
        """Close at once; everything in flight is lost."""
        if self._transport is not None:
            self._transport.abort()
        self._break(why, again)

    def _break(self, why: str, again: _Again = _Again.IF_REPEATABLE) -> None:
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        unsent = len(self._out)
        self._out.clear()
        while self._waiting:
            future, _ = self._waiting.popleft()
            if not future.done():
                was_sent = len(self._waiting) >= unsent
                future.set_exception(_Lost(why, again if was_sent else _Again.ALWAYS))


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
        """Take `redis://`, `rediss://` or `unix://` as redis-py spells them; opens nothing yet.

        Raises:
            ValueError: the URL cannot be used, see `parse_url`.
        """
        self._address = parse_url(url)
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._max_in_flight = max_in_flight
        self._link: _Link | None = None
        self._opening: asyncio.Task[_Link] | None = None

    async def call(self, *words: Word, repeatable: bool = False) -> Reply:
        """Send one command and give its reply.

        A call whose connection broke is repeated once, on a fresh connection, when it was certainly
        not sent or when it is `repeatable`. One that ran out of time is never repeated.

        Raises:
            StoreUnreachable: no connection, no answer within `timeout_s`, or the answer was lost.
            StoreBusy: the store says so (out of memory, read-only, loading, …), or `max_in_flight`
                calls wait for it already.
            StoreFault: any other error reply.
        """
        packed = _pack(words)
        try:
            return await (await self._ready()).send(packed)
        except _Lost as lost:
            if lost.again is _Again.NEVER or (
                lost.again is _Again.IF_REPEATABLE and not repeatable
            ):
                raise StoreUnreachable(f"store {self._address}: {lost}") from lost
        try:
            return await (await self._ready()).send(packed)
        except _Lost as lost:
            raise StoreUnreachable(f"store {self._address}: {lost}") from lost

    async def close(self) -> None:
        """Close the socket; calls in flight fail with `StoreUnreachable`."""
        if self._opening is not None:
            self._opening.cancel()
            with contextlib.suppress(asyncio.CancelledError, StoreError):
                await self._opening
        if self._link is not None:
            self._link.abort("closed", _Again.NEVER)
            self._link = None
            await asyncio.sleep(0)  # lets the transport close its socket

    async def _ready(self) -> _Link:
        link = self._link
        if link is None or not link.alive:
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
                self._opening.add_done_callback(self._opened)
            link = await self._opened_by(self._opening)
        if link.in_flight >= self._max_in_flight:
            raise StoreBusy(f"{self._max_in_flight} calls wait for the store already")
        return link

    async def _opened_by(self, opening: asyncio.Task[_Link]) -> _Link:
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # by close(), and not the caller
                raise StoreUnreachable(f"store {self._address}: closed") from None
            raise

    def _opened(self, task: asyncio.Task[_Link]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:
            self._link = task.result()

    async def _open(self) -> _Link:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                link = await self._dial()
                try:
                    await self._log_in(link)
                except BaseException:
                    link.abort("not logged in")
                    raise
                return link
        except (OSError, TimeoutError, _Lost) as error:
            why = str(error) or f"no connection within {self._connect_timeout_s:g} s"
            raise StoreUnreachable(f"store {self._address}: {why}") from error

    async def _dial(self) -> _Link:
        loop, address = asyncio.get_running_loop(), self._address

        def make() -> _Link:
            return _Link(self._timeout_s)

        if address.path:
            _, link = await loop.create_unix_connection(make, address.path)
        else:
            _, link = await loop.create_connection(
                make, address.host, address.port, ssl=address.tls
            )
        return link

    async def _log_in(self, link: _Link) -> None:
        address = self._address
        greetings: list[tuple[Word, ...]] = []
        if address.password:
            user = (address.username,) if address.username else ()
            greetings.append(("AUTH", *user, address.password))
        if address.database:
            greetings.append(("SELECT", address.database))
        for reply in [link.send(_pack(words)) for words in greetings]:
            await reply
