"""The acting half of an exchange: forward it to the origin, or send the gateway's own answer.

Owns what happens around a forwarded exchange inside a room: the slot is kept alive while it runs,
a lease is given back when it has ended, the origin may revoke the visitor (WR-53).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import structlog

from proxy.gateway.admission import Entry
from proxy.gateway.answers import Answer, to_head
from proxy.gateway.cookies import forget_cookie, forget_rank
from proxy.gateway.cors import readable
from proxy.gateway.errors import ORIGIN_FAILURES, error_answer
from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.forward import AnswerCut, Ended, Outcome, Receive, Send, forward
from proxy.gateway.gate import clean_target
from proxy.gateway.headers import CorvusHeaders, Sender, origin_head
from proxy.gateway.leases import LeaseLost
from proxy.gateway.live import LiveRoom
from proxy.gateway.plan import Site
from proxy.gateway.ranks import obey
from proxy.gateway.resources import InForce, Resources
from proxy.gateway.running import Run
from proxy.gateway.tiers import Tier
from proxy.gateway.upstream_errors import OriginError
from proxy.gateway.upstream_messages import BadHead, RequestHead
from proxy.gateway.upstream_upload import BodyMismatch
from proxy.gateway.websocket import relay
from queueing.config import Unit
from queueing.pages import PageState
from queueing.passes import Credential
from queueing.ranks import read_priority
from queueing.store import StoreError

log = structlog.get_logger("corvus.gateway")


class Sent:
    """An ASGI `send` that remembers what has been sent."""

    __slots__ = ("_send", "size", "status")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.size = 0

    async def __call__(self, event: dict[str, Any]) -> None:
        """Pass an event on."""
        if event["type"] == "http.response.body":
            self.size += len(event.get("body", b""))
        elif "status" in event and event["type"] != "http.response.informational":
            self.status = event["status"]
        elif event["type"] == "websocket.accept":
            self.status = 101
        await self._send(event)


async def send_answer(
    scope: dict[str, Any], send: Send, answer: Answer, *, method: str = "GET"
) -> None:
    """Send a whole answer; to a WebSocket handshake as its denial (ASGI extension)."""
    kind = "http.response"
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1013, "reason": ""})
            return
        kind = "websocket.http.response"
    headers, body = to_head(answer, method)
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": body, "more_body": False})


@dataclass(frozen=True, slots=True)
class Passage:
    """One exchange with everything that acting on it needs."""

    scope: dict[str, Any]
    receive: Receive
    send: Sent
    resources: Resources
    in_force: InForce
    exchange: Exchange

    async def answer(self, answer: Answer, reason: str) -> None:
        """Send the gateway's own answer."""
        plan, exchange = self.in_force.plan, self.exchange
        answer = readable(answer, exchange, plan.site(exchange.host) if exchange.host else None)
        if self.in_force.plan.snapshot.settings.debug_decisions:
            mark = (b"x-corvus-decision", reason.encode())
            answer = Answer(answer.status, [*answer.headers, mark], answer.body)
        await send_answer(self.scope, self.send, answer, method=self.exchange.method)

    async def forward(self, site: Site, entry: Entry, live: LiveRoom | None) -> None:
        """Forward to the origin; what fails before its answer becomes 400, 502 or 504."""
        try:
            if live is None or entry.credential is None:
                await self._carry(site, entry, None, None)
            else:
                await self._inside(site, entry, live, entry.credential)
        except (BadHead, BodyMismatch) as error:
            await self._error(PageState.BAD_REQUEST, str(error))
        except LeaseLost as error:
            log.warning("slot lost", request_id=self.exchange.request_id, error=str(error))
            await self._error(PageState.GATEWAY_TIMEOUT, str(error))
        except OriginError as error:
            log.warning(
                "origin failed",
                request_id=self.exchange.request_id,
                host=site.host.id,
                status=error.status,
                error=str(error),
            )
            await self._error(ORIGIN_FAILURES[error.status], entry.reason)

    async def _inside(self, site: Site, entry: Entry, live: LiveRoom, inside: Credential) -> None:
        """Carry it as a run of its room; who loses the slot of a request is cut off."""
        run = self._run(entry, live, inside)
        try:
            await self._carry(site, entry, live, run)
        except asyncio.CancelledError:
            if not run.stop.is_cut:
                raise
            run.task.uncancel()
            if self.send.status:
                outcome = Outcome(self.send.status, self.send.size, Ended.CUT)
                raise AnswerCut(outcome, LeaseLost(), "slot lost") from None
            raise LeaseLost from None
        finally:
            self.resources.leases.end(run)

    def _run(self, entry: Entry, live: LiveRoom, inside: Credential) -> Run:
        """Say what the exchange holds: a lease, the visitor's own slot, or nothing where every page
        has a lease of its own and this is none."""
        holder, room = entry.lease, live
        if not holder:
            room = self.resources.live.get(inside.room, live)
            holder = inside.sid if room.config.unit is Unit.VISITORS else ""
        run = Run(
            room=room.id,
            sid=inside.sid,
            pass_room=inside.room,
            task=cast("asyncio.Task[Any]", asyncio.current_task()),
            holder=holder,
            is_lease=bool(entry.lease),
        )
        self.resources.leases.hold(run, room.config)
        return run

    async def _carry(
        self, site: Site, entry: Entry, live: LiveRoom | None, run: Run | None
    ) -> None:
        def told(_: int, said: CorvusHeaders) -> Headers | None:
            return self._obey(said, live, entry)

        common: dict[str, Any] = {
            "scope": self.scope,
            "receive": self.receive,
            "send": self.send,
            "origin": site.origin,
            "head": self._head(site),
            "upstream": self.resources.upstream,
            "stop": run.stop if run is not None else None,
            "extra_headers": self._extra(entry),
            "on_origin_headers": told,
        }
        if self.exchange.is_websocket:
            opened = partial(self.resources.leases.give_back, run) if entry.lease and run else None
            await relay(**common, on_open=opened)
        else:
            is_stream = entry.tier is Tier.STREAM
            await forward(**common, is_stream=is_stream, is_leased=bool(entry.lease))

    def _extra(self, entry: Entry) -> Headers:
        extra = entry.headers or []
        if self.in_force.plan.snapshot.settings.debug_decisions:
            return [*extra, (b"x-corvus-decision", entry.reason.encode())]
        return extra

    def _head(self, site: Site) -> RequestHead:
        exchange = self.exchange
        sender = Sender(
            peer=exchange.client.peer,
            client=exchange.client.address,
            trusted=exchange.client.peer_trusted,
            scheme=exchange.peer_scheme,
        )
        return origin_head(
            method=exchange.method.encode(),
            target=clean_target(exchange),
            headers=self.scope["headers"],
            sender=sender,
            host=site.origin_host,
            undeclared_body=self.scope.get("http_version") == "2" and not exchange.is_safe,
        )

    def _obey(self, said: CorvusHeaders, live: LiveRoom | None, entry: Entry) -> Headers | None:
        """Do what the origin's answer asks: end the visitor's session, or grant it a rank."""
        inside = entry.credential
        if live is None or inside is None:
            return None
        if said.revoke:
            return self._revoke(live, inside)
        if said.priority is None or entry.tier is not Tier.PAGE:
            return None
        return self._grant(said.priority, self.resources.live.get(inside.room, live), inside)

    def _grant(self, priority: str, live: LiveRoom, inside: Credential) -> Headers:
        """Give the visitor the rank that a page says it has (WR-14)."""
        wish = read_priority(priority)
        event = "grants_rejected" if wish is None else "grants" if wish.rank else "grants_cleared"
        live.counters[f"priority_{event}"] += 1
        return obey(
            priority,
            exchange=self.exchange,
            settings=self.in_force.plan.snapshot.settings,
            keys=self.in_force.rooms.keys,
            room=live.config,
            sid=inside.sid,
            now_ms=self.resources.clock.now_ms(),
        )

    def _revoke(self, live: LiveRoom, inside: Credential) -> Headers:
        """End the visitor's session here at once; the journal tells the other gateways within a
        second. A pass that is revoked already is not revoked again (WR-53)."""
        live = self.resources.live.get(inside.room, live)
        if not live.revocations.covers(inside):
            live.revoked[inside.sid] = self.resources.clock.now_ms()
            self.resources.running.close_streams(live.id, inside.sid)
            self.resources.running.spawn(self._revoke_in_store(live, inside))
        settings = self.in_force.plan.snapshot.settings
        return [
            *forget_cookie(self.exchange, settings, live.config),
            *forget_rank(self.exchange, settings, live.config),
        ]

    async def _revoke_in_store(self, live: LiveRoom, inside: Credential) -> None:
        try:
            await self.resources.store.release(live.id, inside.sid, revoke=True)
        except StoreError as error:
            log.error("session not revoked in the store", room=live.id, error=str(error))

    async def _error(self, state: PageState, reason: str) -> None:
        settings = self.in_force.plan.snapshot.settings
        answer = error_answer(self.exchange, self.in_force.rooms.pages, settings, state)
        await self.answer(answer, reason)
