"""Keeping one's place, limits and the operator's acts: sections B to E, on the script itself."""

from __future__ import annotations

from queueing import calls
from queueing.config import Unit
from queueing.keys import PARTS
from queueing.places import State
from tests.support.stage import ROOM, Stage, sid
from tests.support.valkey import Valkey

MINUTE = 60_000


def full_room(valkey: Valkey, **config: object) -> Stage:
    """One slot, taken by visitor 0; visitors 1, 2 and 3 wait with these tickets."""
    stage = Stage(valkey, **({"capacity": 1} | config))
    stage.enter_all(range(4))
    return stage


def test_wr_03_a_slot_never_ends_before_what_was_told(valkey: Valkey) -> None:
    with Stage(valkey, capacity=5, active_ttl_ms=20_000, refresh_ms=10_000) as stage:
        told = stage.enter(1).expires_ms
        assert told == stage.now + 20_000
        stage.change(active_ttl_ms=4_000, refresh_ms=2_000)
        stage.beat(1)
        assert stage.enter(1).expires_ms == told
        stage.pass_time(19_999)
        assert stage.members("active") == [sid(1)]
        stage.pass_time(1)
        assert stage.members("active") == []


def test_wr_03_the_absolute_limit_ends_a_slot_that_is_kept_alive(valkey: Valkey) -> None:
    with Stage(valkey, capacity=5, active_ttl_ms=60_000, absolute_ttl_ms=90_000) as stage:
        begun = stage.now
        stage.enter(1)
        stage.pass_time(50_000, beating=(1,))
        assert stage.enter(1).expires_ms == begun + 90_000
        stage.pass_time(39_999, beating=(1,))
        assert stage.beat(1) == [True]
        stage.now += 1
        assert stage.beat(1) == [False]


def test_wr_09_a_saturated_room_keeps_everybody_for_25_hours(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        for _ in range(25 * 60):
            for _ in range(12):
                stage.now += 5_000
                stage.tick()
            stage.beat(0)
            for number in (1, 2, 3):
                assert stage.poll(number).ticket == number
        populated = [stage.key(part) for part in PARTS if stage.client.exists(stage.key(part))]
        assert stage.key("queue") in populated
        assert all(stage.client.ttl(key) == -1 for key in populated)
        assert stage.enter(4).ticket == 4


def test_wr_19_a_hidden_tab_that_polls_once_a_minute_keeps_its_number(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        for _ in range(12):
            stage.pass_time(MINUTE, beating=(0,))
            place = stage.poll(1)
            assert (place.state, place.ticket, place.ahead) == (State.WAITING, 1, 0)
        stage.release(0)
        assert stage.state(1) is State.GRANTED


def test_wr_20_a_sleeping_phone_is_first_again_until_the_return_window_ends(
    valkey: Valkey,
) -> None:
    with Stage(valkey, capacity=1, entries_per_minute=0) as stage:
        stage.enter_all(range(20))
        for number in range(1, 20):
            if number != 7:
                stage.poll(number)
        stage.pass_time(9 * MINUTE + 30_000, beating=(0,), polling=tuple(range(8, 20)))
        place = stage.poll(7, ticket=7)
        assert (place.state, place.ticket, place.ahead) == (State.WAITING, 7, 0)
        stage.release(0)
        assert stage.state(7, ticket=7) is State.GRANTED
        assert stage.state(8, ticket=8) is State.WAITING


def test_wr_20_at_ten_minutes_and_a_second_the_place_is_missed_and_not_renumbered(
    valkey: Valkey,
) -> None:
    with full_room(valkey) as stage:
        stage.pass_time(10 * MINUTE + 1_000, beating=(0,))
        assert stage.state(1, ticket=1) is State.MISSED
        assert stage.enter(1, ticket=1).state is State.MISSED
        assert stage.enter(1, ticket=0).ticket == 4  # asked to rejoin, at the back


def test_a_grant_restarts_its_claim_time_once_when_the_visitor_is_told(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.release(0)
        stage.pass_time(50_000)
        told = stage.poll(1)
        assert (told.state, told.expires_ms) == (State.GRANTED, stage.now + 60_000)
        stage.pass_time(10_000)
        assert stage.poll(1).expires_ms == told.expires_ms
        assert stage.enter(1).state is State.ACTIVE


def test_the_third_lapse_of_a_grant_is_a_miss(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.leave(2)
        stage.leave(3)
        stage.release(0)
        for _ in range(2):
            stage.pass_time(61_000)
            place = stage.poll(1, ticket=1)
            assert (place.state, place.ticket) == (State.GRANTED, 1)
        stage.pass_time(61_000)
        assert stage.state(1, ticket=1) is State.MISSED


def test_a_claim_can_be_lengthened_ten_times(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.release(0)
        for times in range(1, 13):
            place = stage.run(calls.extend(ROOM, sid(1)))
            assert place.extensions == min(times, 10)
            assert place.expires_ms == stage.now + 60_000 * (1 + min(times, 10))


def test_a_closed_page_is_silent_after_15_s_and_a_reload_undoes_it(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.beacon(1)
        stage.beacon(2)
        stage.pass_time(10_000)
        stage.poll(2)
        stage.pass_time(5_001)
        assert stage.members("parked") == [sid(1)]
        assert stage.members("queue") == [sid(2), sid(3)]
        stage.pass_time(584_000, polling=(2, 3), beating=(0,))  # 599 s after its last check-in
        assert stage.poll(1, ticket=1).ticket == 1


def test_a_beacon_touches_neither_grant_nor_slot(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.beacon(0)
        stage.pass_time(20_000)
        assert stage.beat(0) == [True]
        stage.release(0)
        stage.beacon(1)
        stage.pass_time(20_000)
        assert stage.state(1) is State.GRANTED


def test_an_outage_silences_lapses_and_expires_nobody(valkey: Valkey) -> None:
    with full_room(valkey, capacity=2) as stage:
        stage.now += 3_600_000
        assert stage.settle().counts.active == 2
        assert stage.settle().counts.waiting == 2
        place = stage.enter(0)
        assert place.expires_ms == stage.now + stage.config.active_ttl_ms
        stage.now -= 7_200_000  # nor does a clock that steps back
        assert stage.settle().counts.active == 2


def test_wr_25_reset_ends_every_earlier_ticket_claim_and_pass(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.release(0)
        issued = stage.now
        stage.now += 1_000
        assert stage.run(calls.reset(ROOM)) == 2
        for number in range(4):
            assert stage.enter(number, iat_ms=issued, ticket=number).state is State.RESET
            assert stage.poll(number, iat_ms=issued, ticket=number).state is State.RESET
        stage.now += 1
        place = stage.enter(3)
        assert (place.state, place.epoch) == (State.ACTIVE, 2)
        assert stage.enter(2).ticket == 1
        entry = stage.client.xrevrange(stage.key("journal"), count=1)[0][1]
        assert entry[b"kind"] == b"reset"


def test_wr_38_the_61st_new_place_of_a_client_in_a_minute_is_refused(valkey: Valkey) -> None:
    with Stage(valkey, capacity=5) as stage:
        for number in range(60):
            stage.now += 100
            assert stage.enter(number, client="shared").new
        refused = stage.enter(60, client="shared")
        assert refused.state is State.LIMITED
        assert refused.retry_ms == 60_000 - 5_900
        assert stage.enter(59, client="shared").ticket == 55  # who has a place is unaffected
        assert stage.enter(60, client="other").state is State.WAITING
        assert stage.enter(61, client="shared", exempt=True).state is State.WAITING
        before = stage.tick().counts
        assert stage.enter(62, client="shared").state is State.LIMITED
        assert stage.tick().counts == before
        stage.pass_time(54_100, polling=(5,))
        assert stage.enter(62, client="shared").state is State.WAITING


def test_wr_38_the_fourth_check_in_a_second_is_refused_and_the_place_untouched(
    valkey: Valkey,
) -> None:
    with full_room(valkey) as stage:
        for _ in range(3):
            stage.now += 100
            assert stage.state(1) is State.WAITING
        stage.now += 100
        refused = stage.poll(1)
        assert (refused.state, refused.retry_ms, refused.ticket) == (State.LIMITED, 700, 1)
        stage.now += 700
        assert stage.state(1) is State.WAITING


def test_a_refused_check_is_still_a_check_in(valkey: Valkey) -> None:
    with full_room(valkey, polls_per_second=1) as stage:
        stage.pass_time(100_000, polling=(2, 3), beating=(0,))
        stage.poll(1)
        stage.pass_time(60_000, polling=(2, 3), beating=(0,))
        stage.poll(2)
        assert stage.state(2) is State.LIMITED
        stage.poll(1)
        assert stage.state(1) is State.LIMITED
        stage.pass_time(130_000, beating=(0,))
        assert stage.members("queue") == [sid(1), sid(2), sid(3)]


def test_the_line_has_a_limit_and_who_waits_keeps_the_place(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, max_queue=2) as stage:
        stage.enter_all(range(3))
        assert stage.enter(3).state is State.FULL
        assert stage.poll(3).state is State.NONE
        assert stage.enter(2).ticket == 2
        stage.pass_time(140_000, beating=(0,))  # both are parked now
        assert stage.enter(3).state is State.WAITING
        assert stage.enter(4).state is State.WAITING
        assert stage.poll(1, ticket=1).ticket == 1
        stage.leave(3)
        assert stage.enter(5).state is State.FULL  # waiting and parked together


def test_a_check_never_makes_a_place(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1) as stage:
        assert stage.state(1) is State.NONE
        assert stage.settle().counts.active == 0


def test_wr_53_revocation_frees_the_slot_at_once_and_counts_once(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        assert stage.release(0, revoke=True)
        assert stage.members("granted") == [sid(1)]
        assert not stage.release(0, revoke=True)
        entries = stage.client.xrange(stage.key("journal"))
        assert [number for number, _ in entries] == [b"1-0"]
        assert entries[0][1][b"sid"] == sid(0).encode()
        assert stage.tick().journal == 1
        totals = stage.run(calls.stats(ROOM)).totals
        assert (totals["released"], totals["revoked"]) == (1, 1)


def test_a_lease_holds_the_slot_and_frees_it(valkey: Valkey) -> None:
    with Stage(valkey, capacity=1, unit=Unit.REQUESTS) as stage:
        assert stage.enter(1, lease="lease-1").state is State.ACTIVE
        assert stage.members("active") == ["lease-1"]
        assert stage.enter(1, lease="lease-2").state is State.WAITING
        ends = [stage.now + stage.config.lease_ttl_ms, 0]
        assert stage.run(calls.heartbeat(ROOM, ["lease-1", sid(1)])) == ends
        assert stage.run(calls.release(ROOM, "lease-1", revoke=False))
        assert stage.members("granted") == [sid(1)]
        assert stage.enter(1, lease="lease-3").state is State.ACTIVE
        assert stage.members("active") == ["lease-3"]


def test_the_release_rate_is_measured_from_when_the_line_began(valkey: Valkey) -> None:
    with Stage(valkey, capacity=50, entries_per_minute=0) as stage:
        stage.enter_all(range(50))
        stage.pass_time(250_000, beating=tuple(range(50)))
        stage.enter_all(range(50, 80))
        for number in range(10):
            stage.now += 1_000
            stage.release(number)
        place = stage.poll(79)
        assert (place.released, place.released_ms) == (10, 10_000)


def test_the_event_log_has_every_transition_of_a_visitor(valkey: Valkey) -> None:
    with full_room(valkey) as stage:
        stage.release(0)
        stage.pass_time(61_000, polling=(2, 3))
        stage.leave(2)
        stage.poll(1, ticket=1)
        stage.leave(3)
        stage.enter(1)
        mine = [
            (event["kind"], event["reason"]) for event in stage.events() if event["sid"] == sid(1)
        ]
        assert mine == [
            ("joined", ""),
            ("granted", "turn"),
            ("parked", "lapsed"),
            ("returned", "parked"),
            ("granted", "turn"),
            ("admitted", "claim"),
        ]
        assert {"waiting", "parked", "granted", "active", "ticket", "at"} <= set(stage.events()[0])


def test_who_was_served_and_never_heard_of_it_is_no_missed_one(valkey: Valkey) -> None:
    """The page's answer, and the cookie with it, was lost on its way: with a gateway, or because
    the visitor asked again before it came."""
    with Stage(valkey, capacity=1, unit=Unit.REQUESTS) as stage:
        stage.enter(1, lease="lease-1")
        ticket = stage.enter(2, lease="lease-2").ticket
        stage.run(calls.release(ROOM, "lease-1", revoke=False))
        assert stage.enter(2, lease="lease-3", ticket=ticket).state is State.ACTIVE
        again = stage.enter(2, lease="lease-4", ticket=ticket)
        assert (again.state, again.new) == (State.WAITING, True)
        assert stage.state(3, ticket=ticket) is State.MISSED, "another's number is worth nothing"
        stage.leave(2)
        stage.pass_time(stage.config.return_window_ms)
        assert stage.state(2, ticket=ticket) is State.MISSED
        assert stage.client.zcard(stage.key("served")) == 0
