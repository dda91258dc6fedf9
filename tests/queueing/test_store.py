"""The room store: every method, batches, the journal, and a store that fails in many ways."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest
import redis

from queueing.config import Mode, RoomConfig, RoomId, Unit
from queueing.connection import Connection
from queueing.keys import room_key
from queueing.places import Reason, State
from queueing.store import (
    Advance,
    Journal,
    Promotion,
    RoomStore,
    StoreBusy,
    StoreUnreachable,
    SyncRoomStore,
)
from tests.support.fake_stores import free_port, relayed
from tests.support.stage import sid
from tests.support.valkey import Valkey, running_valkey

ROOM = RoomId("shop")


def now_ms() -> int:
    return int(time.time() * 1000)


@contextlib.asynccontextmanager
async def opened(url: str, **config: object) -> AsyncIterator[RoomStore]:
    connection = Connection(url, timeout_s=10, connect_timeout_s=10)
    store = RoomStore(connection)
    await store.configure(RoomConfig(id=ROOM, **({"capacity": 1} | config)))  # type: ignore[arg-type]
    yield store
    await connection.close()


async def enter(store: RoomStore, number: int, **options: object) -> State:
    place = await store.enter(
        ROOM,
        sid(number),
        client="192.0.2.1",
        iat_ms=now_ms(),
        **options,  # type: ignore[arg-type]
    )
    return place.state


async def test_a_visit_from_the_first_request_to_the_end(valkey: Valkey) -> None:
    async with opened(valkey.url) as store:
        began = now_ms()
        first = await store.enter(ROOM, sid(0), client="192.0.2.1", iat_ms=began)
        assert (first.state, first.new, first.ticket) == (State.ACTIVE, True, 0)
        assert began + 300_000 <= first.expires_ms <= now_ms() + 300_000
        second = await store.enter(ROOM, sid(1), client="192.0.2.1", iat_ms=began)
        assert (second.state, second.ticket, second.position) == (State.WAITING, 1, 1)
        assert began <= second.joined_ms <= now_ms()
        told = await store.poll(ROOM, sid(1), iat_ms=began, ticket=1, shown=1)
        assert (told.state, told.reason) == (State.WAITING, Reason.NONE)
        ends = await store.heartbeat(ROOM, [sid(0), sid(1)])
        assert (ends[0] > 0, ends[1]) == (True, 0)
        assert await store.leave(ROOM, sid(0))
        assert not await store.leave(ROOM, sid(0))
        longer = await store.extend(ROOM, sid(1))
        assert (longer.state, longer.extensions) == (State.GRANTED, 1)
        assert await enter(store, 1) is State.ACTIVE
        stats = await store.stats(ROOM)
        assert stats.counts.active == 1
        assert stats.totals == {
            "joined": 2, "admitted": 2, "direct": 1, "grants": 1, "released": 1
        }  # fmt: skip


async def test_a_flushed_script_is_loaded_again(valkey: Valkey) -> None:
    async with opened(valkey.url) as store:
        assert await enter(store, 0) is State.ACTIVE
        valkey.client.script_flush()
        assert await enter(store, 0) is State.ACTIVE
        valkey.client.script_flush()
        rooms = [ROOM, RoomId("other"), RoomId("third")]
        ticks = await asyncio.gather(*map(store.tick, rooms))
        assert [tick.hold for tick in ticks] == [False, True, True]


async def test_many_ids_go_in_batches_and_come_back_in_order(valkey: Valkey) -> None:
    async with opened(valkey.url, capacity=0) as store:
        inside = [sid(number) for number in range(250)]
        assert await store.adopt(ROOM, inside) == 250
        assert await store.adopt(ROOM, inside) == 0
        alive = await store.heartbeat(ROOM, [*inside, sid(999), *inside[:10]])
        assert [end > 0 for end in alive] == [True] * 250 + [False] + [True] * 10
        assert await store.heartbeat(ROOM, []) == []
        assert await store.remove(ROOM, inside[:120]) == 120
        assert await store.expel(ROOM, inside) == 130


async def test_the_journal_is_read_in_order_and_gaps_are_told(valkey: Valkey) -> None:
    async with opened(valkey.url, capacity=5) as store:
        assert await store.journal(ROOM, 0) == Journal(entries=(), gap=False)
        for number in range(4):
            await enter(store, number)
            assert await store.release(ROOM, sid(number), revoke=True)
        await store.reset(ROOM)
        assert (await store.tick(ROOM)).journal == 5
        whole = await store.journal(ROOM, 0)
        assert not whole.gap
        assert [entry.number for entry in whole.entries] == [1, 2, 3, 4, 5]
        assert [entry.kind for entry in whole.entries] == ["revoke"] * 4 + ["reset"]
        assert [entry.sid for entry in whole.entries] == [*map(sid, range(4)), ""]
        assert now_ms() - 5_000 < whole.entries[4].at_ms <= now_ms()
        assert (await store.journal(ROOM, 3)).entries == whole.entries[3:]
        assert await store.journal(ROOM, 5) == Journal(entries=(), gap=False)
        valkey.client.xtrim(room_key(ROOM, "journal"), maxlen=2, approximate=False)
        assert await store.journal(ROOM, 1) == Journal(entries=whole.entries[3:], gap=True)
        assert await store.journal(ROOM, 3) == Journal(entries=whole.entries[3:], gap=False)
        assert (await store.journal(ROOM, 9)).gap  # the store began anew


async def test_a_lost_reply_makes_no_second_place(valkey: Valkey) -> None:
    """The first answer of a visitor's entry is thrown away on the way; the call is repeated."""
    cuts = []

    def judge(command: bytes, answer: bytes) -> bytes:
        if b"\nenter\r" in command and b"NOSCRIPT" not in answer and not cuts:
            cuts.append(answer)
            return b""
        return answer

    async with (
        relayed(valkey, judge) as port,
        opened(f"redis://127.0.0.1:{port}", capacity=0) as store,
    ):
        place = await store.enter(ROOM, sid(0), client="192.0.2.1", iat_ms=now_ms())
        assert len(cuts) == 1
        assert (place.state, place.ticket, place.position) == (State.WAITING, 1, 1)
        assert (await store.stats(ROOM)).totals == {"joined": 1}


@pytest.mark.parametrize("failure", ["memory", "replica", "script"])
async def test_a_store_that_cannot_work_is_busy_and_nothing_is_half_done(
    valkey: Valkey, failure: str
) -> None:
    async with opened(valkey.url) as store:
        assert await enter(store, 0) is State.ACTIVE
        keys = {key: valkey.client.dump(key) for key in valkey.client.keys("*")}
        with broken(valkey, failure):
            for act in (enter(store, 1), store.tick(ROOM), store.release(ROOM, sid(0))):
                with pytest.raises(StoreBusy):
                    await act
        assert {key: valkey.client.dump(key) for key in valkey.client.keys("*")} == keys
        assert await enter(store, 1) is State.WAITING


@contextlib.contextmanager
def broken(valkey: Valkey, failure: str) -> Iterator[None]:
    client = valkey.client
    if failure == "memory":
        client.config_set("maxmemory", 1)
        yield
        client.config_set("maxmemory", 0)
    elif failure == "replica":
        client.replicaof("127.0.0.1", 1)
        yield
        client.replicaof("NO", "ONE")
    else:
        client.config_set("busy-reply-threshold", 1)
        endless = threading.Thread(target=_run_endless_script, args=(valkey.socket_path,))
        endless.start()
        with pytest.raises(redis.exceptions.ResponseError, match="BUSY"):
            _ask_until_refused(client)
        yield
        client.script_kill()
        endless.join()


def _ask_until_refused(client: redis.Redis) -> None:
    while client.ping():
        pass


def _run_endless_script(socket_path: str) -> None:
    with (
        redis.Redis(unix_socket_path=socket_path) as client,
        pytest.raises(redis.exceptions.ResponseError, match="killed"),
    ):
        client.eval("while true do end", 0)


async def test_a_stopped_store_is_unreachable() -> None:
    with running_valkey() as valkey:
        async with opened(valkey.url) as store:
            assert await enter(store, 0) is State.ACTIVE
            valkey.process.kill()
            valkey.process.wait()
            with pytest.raises(StoreUnreachable):
                await enter(store, 0)


async def test_one_room_is_one_slot_of_a_cluster() -> None:
    options = ["--port", str(free_port()), "--bind", "127.0.0.1", "--cluster-enabled", "yes"]
    with running_valkey(*options, "--cluster-port", str(free_port())) as valkey:
        valkey.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        while b"cluster_state:ok" not in valkey.client.execute_command("CLUSTER", "INFO"):
            pass
        async with opened(valkey.url, unit=Unit.REQUESTS) as store:
            assert await enter(store, 0, lease="lease-1") is State.ACTIVE
            assert await enter(store, 1) is State.WAITING
            assert await store.release(ROOM, "lease-1")
            place = await store.poll(ROOM, sid(1), iat_ms=now_ms())
            assert place.state is State.GRANTED
            assert await store.reset(ROOM) == 2


async def test_djangos_way_and_the_gateways_way_are_one_room(valkey: Valkey) -> None:
    sync = SyncRoomStore(valkey.client)
    async with opened(valkey.url) as store:
        for number in range(4):
            await enter(store, number)
        seen = [sync.stats(ROOM), await store.stats(ROOM)]
        assert replace(seen[0], now_ms=0) == replace(seen[1], now_ms=0)
        paused = RoomConfig(id=ROOM, version=2, capacity=1, mode=Mode.PAUSED)
        assert sync.configure(paused)
        assert not await store.configure(paused)
        assert not sync.recover(paused)
        assert await store.promote(ROOM, sid(1)) is Promotion.STOPPED
        assert sync.promote(ROOM, sid(1)) is Promotion.STOPPED
        assert sync.remove(ROOM, [sid(1)]) == 1
        assert sync.expel(ROOM, [sid(2)]) == 1
        assert sync.release_all(ROOM) == 1
        assert sync.reset(ROOM) == 2
        kinds = [entry.kind for entry in (await store.journal(ROOM, 0)).entries]
        assert kinds == ["release_all", "reset"]


async def test_a_form_by_the_lane_from_waiting_for_it_to_the_end(valkey: Valkey) -> None:
    async with opened(valkey.url, priority_cap=1) as store:
        assert await enter(store, 0) is State.ACTIVE
        assert await enter(store, 1, form=True, lease="first") is State.ACTIVE
        assert await enter(store, 2, form=True, lease="second", lane_wait=True) is State.LANE
        assert await store.lane(ROOM, ["first", "second", "third"]) == [2, 1, 0]
        assert await store.release(ROOM, "first")
        assert await store.lane(ROOM, ["second"]) == [2]
        began = now_ms()
        (ends,) = await store.heartbeat(ROOM, ["second"])
        assert began + 30_000 <= ends <= now_ms() + 30_000
        assert await enter(store, 3, form=True, lease="third") is State.UNSENT
        counts = (await store.stats(ROOM)).counts
        assert (counts.active, counts.lane, counts.lane_waiting, counts.waiting) == (1, 1, 0, 0)
        assert await store.lane(ROOM, []) == []


async def test_many_lane_requests_are_asked_for_in_batches(valkey: Valkey) -> None:
    async with opened(valkey.url, priority_cap=120) as store:
        await enter(store, 0)
        holders = [f"lease-{number}" for number in range(250)]
        for number, lease in enumerate(holders, 1):
            await enter(store, number, form=True, lease=lease, lane_wait=True)
        assert await store.lane(ROOM, holders) == [2] * 120 + [1] * 130


async def test_a_payment_through_either_door_is_taken_once(valkey: Valkey) -> None:
    sync = SyncRoomStore(valkey.client)
    async with opened(valkey.url) as store:
        for number in range(4):
            await enter(store, number)
        paid = {"reason": Reason.PAID, "payment": "p-1", "vip_ms": 60_000}
        assert await store.advance(ROOM, sid(3), **paid) is Advance.MOVED
        assert sync.advance(ROOM, sid(3), **paid) is Advance.ALREADY
        assert 0 < valkey.client.ttl(room_key(ROOM, "paid:p-1")) <= 30 * 24 * 3600
        assert sync.advance(ROOM, sid(2), reason=Reason.OPERATOR) is Advance.MOVED
        place = await store.poll(ROOM, sid(3), iat_ms=now_ms())
        assert (place.position, place.paid) == (1, True)
        assert place.vip_until_ms > now_ms()
        listed = sync.people(ROOM, inside=False, first=0, count=10)
        assert [(p.sid, p.ticket, p.front) for p in listed] == [
            (sid(1), 1, 0), (sid(2), 2, 2), (sid(3), 3, 1)
        ]  # fmt: skip
        assert [p.sid for p in sync.people(ROOM, inside=True, first=0, count=10)] == [sid(0)]


async def test_a_stay_is_read_and_prolonged(valkey: Valkey) -> None:
    async with opened(valkey.url, absolute_ttl_ms=600_000) as store:
        await enter(store, 0)
        before = await store.session(ROOM, sid(0))
        after = await store.prolong(ROOM, sid(0))
        assert (before.extensions, after.extensions) == (0, 1)
        assert after.limit_ms == pytest.approx(before.limit_ms + 600_000, abs=50)
        assert (await store.session(ROOM, sid(1))).expires_ms == 0


async def test_a_lost_reply_moves_nobody_twice(valkey: Valkey) -> None:
    """With a payment the call is repeated and does nothing more; without, it is not repeated."""
    cuts = []

    def judge(command: bytes, answer: bytes) -> bytes:
        if b"\nadvance\r" in command and b"NOSCRIPT" not in answer:
            cuts.append(answer)
            return b"" if len(cuts) in (1, 3) else answer
        return answer

    async with (
        relayed(valkey, judge) as port,
        opened(f"redis://127.0.0.1:{port}", capacity=0) as store,
    ):
        for number in range(2):
            await enter(store, number)
        paid = await store.advance(ROOM, sid(1), reason=Reason.PAID, payment="p-1")
        assert paid is Advance.ALREADY
        with pytest.raises(StoreUnreachable):
            await store.advance(ROOM, sid(0), reason=Reason.OPERATOR)
        assert len(cuts) == 3
        assert (await store.stats(ROOM)).totals["advanced"] == 2


async def test_a_room_without_its_data_holds_in_every_operation(valkey: Valkey) -> None:
    async with opened(valkey.url) as store:
        other = RoomId("other")
        place = await store.enter(other, sid(0), client="192.0.2.1", iat_ms=now_ms())
        assert (place.state, place.counts.lane, place.vip_until_ms) == (State.HOLD, 0, 0)
        assert await store.lane(other, ["lease"]) == await store.heartbeat(other, ["lease"]) == [0]
        assert await store.advance(other, sid(0), reason=Reason.OPERATOR) is Advance.UNKNOWN
        assert (await store.session(other, sid(0))).expires_ms == 0
        assert (await store.prolong(other, sid(0))).expires_ms == 0
        assert (await store.tick(other)).hold
        assert (await store.stats(other)).hold
        assert not valkey.client.keys("*other*")
