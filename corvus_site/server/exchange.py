"""One HTTP exchange as the application sees it: `receive`, the task, and what happens when it ends.

HTTP/1.1 and HTTP/2 share it; each has its own `send` (`http1_exchange`, `http2`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from corvus_site.server.head import Headers

from corvus_site.server.house import Address, House, Message, Scope

logger = logging.getLogger(__name__)

BODY_HIGH_WATER: Final = 64 * 1024
"""Bytes of a request body that wait for the application before reading from the client stops."""


class ClientGone(OSError):
    """The client has gone, or the exchange is over: nothing can be sent to it any more."""


class Signal:
    """Wakes every task that waits at this moment."""

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Sleep until the next `wake`."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        """Let every waiting task go on."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


def http_scope(
    *,
    version: str,
    method: str,
    scheme: str,
    target: bytes,
    headers: Headers,
    client: Address | None,
    server: Address | None,
) -> Scope:
    """Build the ASGI scope of a request; `target` is in origin-form or `*`."""
    raw_path, _, query = target.partition(b"?")
    text = raw_path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": version,
        "method": method,
        "scheme": scheme,
        "path": unquote(text) if "%" in text else text,
        "raw_path": raw_path,
        "query_string": query,
        "root_path": "",
        "headers": headers,
        "client": client,
        "server": server,
        "extensions": {
            "corvus.server": {"target": target},
            "http.response.informational": {},
            "http.response.trailers": {},
        },
    }


class Exchange:
    """A request and its answer. Subclasses write the answer in their protocol's form."""

    __slots__ = (
        "_arrived",
        "_buffered",
        "_given",
        "_headers",
        "_parts",
        "_status",
        "_trailers",
        "body_done",
        "complete",
        "gone",
        "scope",
        "server",
        "started",
        "task",
    )

    def __init__(self, server: House, scope: Scope, *, body_done: bool) -> None:
        self.server = server
        self.scope = scope
        self.body_done = body_done  # the whole request body has arrived
        self.started = False  # the final answer's head has been written
        self.complete = False  # all of the answer has been handed to the network
        self.gone = False  # the client has gone, or the server has taken the exchange away
        self.task: asyncio.Task[None] | None = None
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._given = False  # the last body part has been given to the application
        self._arrived: Signal | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._trailers = False

    def start(self) -> None:
        """Call the application in a task of its own."""
        self.task = self.server.spawn(self._run())

    def feed(self, data: bytes, *, done: bool) -> None:
        """Take a part of the request body from the network."""
        if data:
            self._parts.append(data)
            self._buffered += len(data)
        self.body_done = done
        if self._arrived is not None:
            self._arrived.wake()

    @property
    def is_full(self) -> bool:
        """Whether enough of the body waits for the application."""
        return self._buffered >= BODY_HIGH_WATER

    def lost(self) -> None:
        """Tell the application that there is nobody to answer any more, and end its task."""
        if self.gone:
            return
        self.gone = True
        self._parts.clear()
        if self._arrived is not None:
            self._arrived.wake()
        if self.task is not None and not self.complete:
            self.task.cancel()

    async def receive(self) -> Message:
        """ASGI `receive`: the next part of the body, then `http.disconnect` at the end."""
        while not (self.gone or self.complete):
            if self._parts or (self.body_done and not self._given):
                return self._next_part()
            if not self.body_done:
                self._want_body()
            if self._arrived is None:
                self._arrived = Signal()
            await self._arrived.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """ASGI `send`."""
        raise NotImplementedError

    def _next_part(self) -> Message:
        if len(self._parts) == 1:
            body = self._parts.popleft()
        else:
            body = b"".join(self._parts)
            self._parts.clear()
        self._buffered = 0
        if body:
            self._body_taken(len(body))
        self._given = self.body_done
        return {"type": "http.request", "body": body, "more_body": not self.body_done}

    async def _run(self) -> None:
        try:
            await self.server.application(self.scope, self.receive, self.send)
        except asyncio.CancelledError:
            if not self.gone:
                logger.warning("the application's task was cancelled from within")
        except ClientGone:
            pass
        except ConnectionAbortedError as cut:  # on purpose: no fault of the application's
            logger.debug("the application cuts its answer off: %s", cut)
        except Exception:
            if not self.gone:
                logger.exception("the application failed on %s", self.scope["method"])
        if not (self.complete or self.gone):
            if not self.started:
                logger.error("the application ended without a whole answer")
            self._unanswered()

    def _take_start(self, message: Message) -> None:
        """Keep the answer's status and headers until its first body part or the next turn."""
        if self._status:
            raise RuntimeError("http.response.start was sent twice")
        status = message["status"]
        if not 200 <= status <= 999:
            raise ValueError(f"status {status!r} is not allowed: 200 to 999 for a final answer")
        self._status = int(status)
        self._headers = list(message.get("headers", ()))
        self._trailers = bool(message.get("trailers", False))

    def _finish(self) -> None:
        self.complete = True
        if self._arrived is not None:
            self._arrived.wake()

    def _want_body(self) -> None:
        """Know that the application waits for a body (the place of `100 Continue`)."""

    def _body_taken(self, size: int) -> None:
        """Know that the application took `size` bytes, so that more may be read."""

    def _unanswered(self) -> None:
        """Answer 500 if nothing was answered yet; cut the answer off otherwise."""
        raise NotImplementedError
