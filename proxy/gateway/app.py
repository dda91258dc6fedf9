"""The data plane's ASGI application: one exchange from its scope to its end.

Facts → `decide` → the room's stage → origin or answer. Everything an exchange needs comes from
`Resources`; nothing here blocks, and nothing here knows Django.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import structlog

from proxy.gateway import endpoints
from proxy.gateway.access_log import AccessLog
from proxy.gateway.admission import Entry
from proxy.gateway.answers import Answer, plain
from proxy.gateway.assets import serve_asset, serve_public_asset
from proxy.gateway.decide import (
    BadRequest,
    BanPath,
    Reserved,
    Route,
    ToOrigin,
    UnknownHost,
    decide,
)
from proxy.gateway.errors import error_answer
from proxy.gateway.exchange import Exchange, read_exchange
from proxy.gateway.forward import AnswerCut, Receive, Send
from proxy.gateway.passage import Passage, Sent, send_answer
from proxy.gateway.repost import passed_on
from proxy.gateway.request_body import RequestBody
from proxy.gateway.resources import GatewayEnvironment, InForce, Resources, open_resources
from proxy.gateway.snapshot import Snapshot
from proxy.gateway.streams import serve_stream
from proxy.gateway.tiers import Tier
from proxy.gateway.visits import serve_page
from queueing.pages import PageState

log = structlog.get_logger("corvus.gateway")

Scope = dict[str, Any]
_RETRY = [(b"retry-after", b"1")]
_PROCESS = os.urandom(4).hex()
"""With a running number this makes request ids: unique in the logs, and no secret."""
_numbers = itertools.count(1)


class Gateway:
    """The application that an ASGI server calls."""

    def __init__(self, environment: Callable[[], GatewayEnvironment]) -> None:
        self._environment = environment
        self._resources: Resources | None = None
        self._opening = asyncio.Lock()
        self._log = AccessLog()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        resources = self._resources or await self._open()
        if resources.in_force is None:
            await send_answer(scope, send, _without_configuration(scope))
            return
        await self._exchange(scope, receive, send, resources, resources.in_force)

    async def close(self) -> None:
        """Free everything; the next request opens anew."""
        self._log.flush()
        if self._resources is not None:
            resources, self._resources = self._resources, None
            await resources.close()

    async def _open(self) -> Resources:
        async with self._opening:
            if self._resources is None:
                self._resources = await open_resources(self._environment())
        return self._resources

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            event = (await receive())["type"]
            if event == "lifespan.startup":
                await self._open()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _exchange(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        resources: Resources,
        in_force: InForce,
    ) -> None:
        started = time.monotonic()
        request_id = f"{_PROCESS}{next(_numbers):08x}"
        plan = in_force.plan
        exchange = read_exchange(scope, plan.clients, request_id, proto_header=plan.proto_header)
        sent = Sent(send)
        why, route = "failed", None
        try:
            route = decide(exchange, plan)
            passage = Passage(scope, receive, sent, resources, in_force, exchange)
            why = await self._serve(passage, route)
        except AnswerCut as cut:
            why = cut.why
            log.warning(why, request_id=exchange.request_id, error=str(cut))
            raise  # the server cuts the connection, so that nobody takes the answer for whole
        except asyncio.CancelledError:  # how our server tells that the client has gone
            why = "client gone"
            raise
        except OSError:
            why = "client gone"
        except Exception:
            log.exception("exchange failed", request_id=exchange.request_id)
            if sent.status:
                raise
            await self._fail(scope, sent, in_force, exchange)
        finally:
            resources.counters["requests"] += 1
            if plan.snapshot.settings.access_log and not _is_asset(route):
                self._log.note(exchange, sent.status, sent.size, started, why)

    async def _serve(self, passage: Passage, route: Route) -> str:
        """Act on a decision; gives its reason."""
        resources, in_force, exchange = passage.resources, passage.in_force, passage.exchange
        match route:
            case ToOrigin():
                return await serve(passage, route)
            case BanPath():
                resources.counters["ban_path"] += 1
                await passage.answer(_error(in_force, exchange, PageState.BLOCKED), route.reason)
            case Reserved():
                answer = await endpoints.reserved(
                    exchange,
                    route.site,
                    in_force.rooms,
                    resources.live,
                    resources.operations(),
                    RequestBody(passage.scope["headers"], passage.receive),
                )
                await passage.answer(answer, route.reason)
            case BadRequest():
                await passage.answer(
                    _error(in_force, exchange, PageState.BAD_REQUEST), route.reason
                )
            case UnknownHost():
                await passage.answer(_error(in_force, exchange, PageState.NOT_FOUND), route.reason)
        return route.reason

    async def _fail(self, scope: Scope, sent: Sent, in_force: InForce, exchange: Exchange) -> None:
        answer = _error(in_force, exchange, PageState.SERVER_ERROR)
        await send_answer(scope, sent, answer, method=exchange.method)


def _is_asset(route: Route | None) -> bool:
    """Whether the access log leaves it out: a page has many (design §7)."""
    return isinstance(route, ToOrigin) and route.tier in (Tier.ASSET, Tier.PUBLIC_ASSET)


async def serve(passage: Passage, route: ToOrigin) -> str:
    """Serve what belongs to an origin as its tier wants it; gives the decision's reason."""
    match route.tier:
        case Tier.ASSET:
            return await serve_asset(passage, route)
        case Tier.PUBLIC_ASSET:
            return await serve_public_asset(passage, route)
        case Tier.STREAM:
            return await serve_stream(passage, route)
        case Tier.PAGE if route.room is not None:
            return await passed_on(passage, route) or await serve_page(passage, route, route.room)
    resources, rooms = passage.resources, passage.in_force.plan.snapshot.rooms
    resources.sessions.note(passage.exchange, route.site, rooms, resources.clock.now_ms())
    await passage.forward(route.site, Entry(reason=route.reason, tier=route.tier), None)
    return route.reason


def _without_configuration(scope: Scope) -> Answer:
    """Answer while nothing is in force: the process lives, but serves nobody; the log says why."""
    if scope["path"] == "/__corvus/healthz":
        return plain(200, "ok")
    return plain(503, "not ready: no configuration is in force", _RETRY)


def _error(in_force: InForce, exchange: Exchange, state: PageState) -> Answer:
    snapshot: Snapshot = in_force.plan.snapshot
    return error_answer(exchange, in_force.rooms.pages, snapshot.settings, state)
