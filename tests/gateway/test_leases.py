"""Slots of single requests: renewed together, given back once, cut before they are another's."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway.leases import Leases
from proxy.gateway.live import LiveRoom
from proxy.gateway.running import STREAM_REVOKED, Run, Running
from queueing.config import RoomConfig, RoomId, Unit, VisitorId
from queueing.connection import Connection
from queueing.store import RoomStore
from tests.support.crowd import Visitor, until
from tests.support.gateways import Gateways
from tests.support.halting_relay import HaltingRelay, halting_relay
from tests.support.raw_origin import OriginConnection, RawOrigin
from tests.support.valkey import Valkey

LIFE_MS = 5_000


@dataclass
class Bench:
    """Leases on a real store, with what stands before it."""

    store: RoomStore
    running: Running
    leases: Leases
    relay: HaltingRelay

    async def page(self, live: LiveRoom, name: str, *, lease: bool = True) -> Run:
        """Let somebody in and hold the slot; the exchange is a task that never ends by itself."""
        holder = f"lease-{name}" if lease else f"visitor-{name:0>8}"
        sid = VisitorId(f"visitor-{name:0>8}")
        place = await self.store.enter(
            live.id, sid, client=name, iat_ms=1, lease=holder if lease else ""
        )
        assert place.state == "active"
        run = Run(
            room=live.id,
            sid=sid,
            pass_room=live.id,
            task=asyncio.create_task(asyncio.Event().wait()),  # type: ignore[arg-type]
            holder=holder,
            is_lease=lease,
        )
        self.leases.hold(run, live.config)
        return run

    async def active(self, live: LiveRoom) -> int:
        return (await self.store.stats(live.id)).counts.active


@contextlib.asynccontextmanager
async def bench(valkey: Valkey) -> AsyncIterator[Bench]:
    async with halting_relay(valkey.url) as relay:
        connection = Connection(relay.url)
        store, running = RoomStore(connection), Running()
        try:
            yield Bench(store, running, Leases(store, running), relay)
        finally:
            for runs in running._runs.values():
                for run in runs:
                    run.task.cancel()
            await running.finish()
            await connection.close()


async def room(on: Bench, name: str, unit: Unit = Unit.REQUESTS) -> LiveRoom:
    live = LiveRoom(
        RoomConfig(id=RoomId(name), unit=unit, lease_ttl_ms=LIFE_MS, entries_per_minute=0)
    )
    await on.store.configure(live.config)
    live.tick = await on.store.tick(live.id)
    return live


def due(*runs: Run) -> None:
    for run in runs:
        run.due_at = 0.0


async def test_all_leases_of_a_room_are_renewed_by_one_call(valkey: Valkey) -> None:
    async with bench(valkey) as on:
        live = await room(on, "batch")
        runs = [await on.page(live, str(n)) for n in range(50)]
        before = runs[0].cut_at
        await on.leases.renew(live)
        assert "heartbeat" not in on.relay.asked, "none is due"
        due(*runs)
        began = time.monotonic()
        await on.leases.renew(live)
        assert Counter(on.relay.asked)["heartbeat"] == 1
        for run in runs:
            assert began + LIFE_MS / 3_000 <= run.due_at <= time.monotonic() + LIFE_MS / 3_000
            assert before < run.cut_at < began + LIFE_MS / 1_000


async def test_a_batch_that_failed_is_tried_again_at_the_next_tick(valkey: Valkey) -> None:
    async with bench(valkey) as on:
        live = await room(on, "again")
        run = await on.page(live, "1")
        due(run)
        cut_at = run.cut_at
        valkey.client.config_set("maxmemory", 1)
        try:
            await on.leases.renew(live)
            await on.leases.renew(live)
        finally:
            valkey.client.config_set("maxmemory", 0)
        assert Counter(on.relay.asked)["heartbeat"] == 2, "asked at each tick"
        assert run.cut_at == cut_at, "what failed has renewed nothing"
        await on.leases.renew(live)
        assert run.cut_at > cut_at


async def test_a_shorter_life_that_only_the_store_knows_of_is_kept_to(valkey: Valkey) -> None:
    """Between the saving of a configuration and its coming into force here."""
    async with bench(valkey) as on:
        live = await room(on, "short")
        await on.store.configure(replace(live.config, version=2, lease_ttl_ms=2_000))
        run = await on.page(live, "1")
        live.tick = await on.store.tick(live.id)
        due(run)
        began = time.monotonic()
        await on.leases.renew(live)
        assert began < run.due_at < run.cut_at < began + 2


async def test_a_lease_that_the_room_gave_away_is_cut_and_a_visitors_stream_ends(
    valkey: Valkey,
) -> None:
    async with bench(valkey) as on:
        requests, visitors = await room(on, "req"), await room(on, "vis", Unit.VISITORS)
        page = await on.page(requests, "1")
        kept = await on.page(requests, "2")
        session = await on.page(visitors, "3", lease=False)
        await on.store.release(requests.id, page.holder)
        await on.store.release(visitors.id, session.holder)
        due(page, kept, session)
        await on.leases.renew(requests)
        await on.leases.renew(visitors)
        await asyncio.wait({page.task}, timeout=1)
        assert page.task.cancelled()
        assert requests.counters["leases_cut"] == 1
        assert (session.stop.code, session.stop.is_cut) == (STREAM_REVOKED, False)
        assert not session.task.done(), "an ordinary answer is delivered to its end"
        assert not kept.task.done()
        on.leases.end(page)
        await on.running.finish()
        assert on.relay.asked.count("release") == 2, "what another may hold is not given back"


async def test_a_lease_given_back_while_its_renewal_is_under_way_is_not_cut(
    valkey: Valkey,
) -> None:
    async with bench(valkey) as on:
        live = await room(on, "race")
        run = await on.page(live, "1")
        await on.store.release(live.id, run.holder)  # as if it overtook the renewal
        due(run)
        renewing = asyncio.create_task(on.leases.renew(live))
        await asyncio.sleep(0)
        on.leases.give_back(run)
        await renewing
        assert not run.stop.is_cut
        assert not live.counters["leases_cut"]


class Quiet:
    """A store that only counts what it is asked; for what needs no answer."""

    def __init__(self) -> None:
        self.released: list[str] = []

    async def release(self, room: str, holder: str) -> bool:
        self.released.append(holder)
        return True


ACTS = st.lists(st.sampled_from(["give back", "end", "overdue"]), max_size=6)


@given(ACTS)
def test_a_lease_is_given_back_exactly_once_or_was_lost(acts: list[str]) -> None:
    async def play() -> None:
        store, running = Quiet(), Running()
        leases = Leases(store, running)  # type: ignore[arg-type]
        live = LiveRoom(RoomConfig(id=RoomId("r"), unit=Unit.REQUESTS))
        run = Run(
            room=live.id,
            sid=VisitorId("v"),
            pass_room=live.id,
            task=asyncio.create_task(asyncio.Event().wait()),  # type: ignore[arg-type]
            holder="lease",
            is_lease=True,
        )
        leases.hold(run, live.config)
        for act in [*acts, "end"]:
            if act == "give back":
                leases.give_back(run)
            elif act == "end":
                leases.end(run)
                break
            else:
                run.cut_at = min(run.cut_at, 0.0) if run.holder else run.cut_at
                leases.cut_overdue([live])
        await running.finish()
        lost = live.counters["leases_cut"]
        assert store.released == ["lease"] * (1 - lost)
        assert run.stop.is_cut is bool(lost)
        assert len(running) == 0
        run.task.cancel()
        await asyncio.gather(run.task, return_exceptions=True)

    asyncio.run(play())


@given(
    st.integers(2_000, 600_000),
    st.lists(st.floats(0.01, 0.5), min_size=1, max_size=10),
    st.floats(0, 1.2),
)
def test_an_exchange_is_cut_after_four_fifths_of_a_life_without_renewal(
    life_ms: int, renewals: list[float], silence: float
) -> None:
    """However often it was renewed before: what counts is when the last one was asked for."""

    class Answers(Quiet):
        async def heartbeat(self, room: str, holders: list[str]) -> list[int]:
            clock.here += 0.05  # the answer takes its time
            return [clock.store_ms() + life_ms] * len(holders)

    class Clock:
        here = 1_000.0

        def store_ms(self) -> int:
            return 1_800_000_000_000 + int(self.here * 1000)

    clock = Clock()

    async def play() -> None:
        leases = Leases(Answers(), Running())  # type: ignore[arg-type]
        live = LiveRoom(RoomConfig(id=RoomId("r"), unit=Unit.REQUESTS, lease_ttl_ms=life_ms))
        task = asyncio.create_task(asyncio.Event().wait())
        run = Run(
            room=live.id,
            sid=VisitorId("v"),
            pass_room=live.id,
            task=task,  # type: ignore[arg-type]
            holder="lease",
            is_lease=True,
        )
        leases.hold(run, live.config)
        asked_at = clock.here
        for part in renewals:
            clock.here += part * life_ms / 1000
            run.due_at = 0.0
            asked_at = clock.here
            await leases.renew(live)
        clock.here = max(clock.here, asked_at + silence * life_ms / 1000)
        leases.cut_overdue([live])
        waited = (clock.here - asked_at) / (life_ms / 1000)
        if abs(waited - 0.8) > 0.001:
            assert run.stop.is_cut is (waited > 0.8)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxy.gateway.leases.time.monotonic", lambda: clock.here)
        asyncio.run(play())


class Busy:
    """An origin that works until its connection ends or it is told to answer."""

    def __init__(self) -> None:
        self.inside = 0
        self.most_inside = 0
        self.answer = asyncio.Event()

    async def __call__(self, connection: OriginConnection) -> None:
        if b"/slow" in await connection.head():
            self.inside += 1
            self.most_inside = max(self.most_inside, self.inside)
            gone = asyncio.create_task(connection.ended())
            told = asyncio.create_task(self.answer.wait())
            try:
                await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self.inside -= 1
                gone.cancel()
                told.cancel()
        await connection.send(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"
        )


async def test_wr_02_a_gateway_without_its_store_cuts_before_another_gives_the_slot_away(
    world: Gateways,
) -> None:
    """The store answers everybody but one gateway: what that one has under way must have ended
    before the slot is somebody else's."""
    busy = Busy()
    room = world.room(capacity=1, unit=Unit.REQUESTS, lease_ttl_ms=2_000, entries_per_minute=0)
    async with halting_relay(world.store_url) as relay, RawOrigin(busy) as origin:
        alone = {"CORVUS_STORE_URL": relay.url, "CORVUS_MACHINE_DIR": str(world.folder / "other")}
        victim = await asyncio.to_thread(world.start, alone)
        url = f"http://127.0.0.1:{origin.port}"
        try:
            await asyncio.to_thread(world.publish, room, origin=url)
            first, second = Visitor(victim.port), Visitor(world.one.port)
            for visitor in (first, second):
                await visitor.get("/")
            page = asyncio.create_task(first.get("/slow"))
            await until(lambda: _is(busy.inside == 1), what="the page to be under way")
            await until(lambda: _is("heartbeat" in relay.asked), what="a renewal")
            relay.halt_at("heartbeat", before=True)

            async def gets_in() -> bool:
                asking = asyncio.create_task(second.get("/slow"))
                await asyncio.wait({asking}, timeout=0.2)
                if not asking.done():
                    waiting.append(asking)
                    return True
                return False

            waiting: list[asyncio.Task[Any]] = []
            await until(gets_in, what="the slot to be free")
            assert busy.most_inside == 1
            cut = await asyncio.wait_for(page, 5)
            assert (cut.status, cut.json["error"]) == (504, "origin too slow")
            assert "slot is lost" in victim.log.read_text()
            busy.answer.set()
            assert (await waiting[0]).status == 200
        finally:
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
            world.gateways.remove(victim)
        for visitor in (first, second):
            await visitor.close()


async def _is(fact: bool) -> bool:
    await asyncio.sleep(0.01)
    return fact


async def test_the_answer_does_not_wait_for_the_slot_to_be_given_back(world: Gateways) -> None:
    room = world.room(capacity=5, unit=Unit.REQUESTS, entries_per_minute=0)
    async with halting_relay(world.store_url) as relay:
        alone = {"CORVUS_STORE_URL": relay.url, "CORVUS_MACHINE_DIR": str(world.folder / "other")}
        victim = await asyncio.to_thread(world.start, alone)
        try:
            await asyncio.to_thread(world.publish, room)
            visitor = Visitor(victim.port)
            await visitor.get("/")
            assert (await visitor.get("/")).status == 200
            await until(lambda: _is("release" in relay.asked), what="the first slot to be free")
            relay.asked.clear()
            relay.halt_at("release", before=True)
            assert (await visitor.get("/")).status == 200
            await asyncio.wait_for(relay.halted.wait(), 5)
            calls = Counter(relay.asked)
            assert (calls["enter"], calls["release"]) == (1, 1), "two calls a page, each once"
            await visitor.close()
        finally:
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
            world.gateways.remove(victim)
