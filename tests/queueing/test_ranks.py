"""Ranks: the words of the header, the cookie's signature, and to whom a grant belongs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.config import RANKS, RoomId, VisitorId
from queueing.passes import Credential, Keyring, Kind, Verdict, new_sid
from queueing.ranks import (
    LONGEST_MS,
    SHORTEST_MS,
    RankGrant,
    Wish,
    rank_cookie_name,
    read_priority,
    read_rank,
    sign_rank,
)

ROOM, SID = RoomId("sale"), VisitorId("abcdefghijklmnop")
MASTER = b"a master key that only this test knows"
KEYS = Keyring(MASTER, 3)
MINUTE, HOUR = 60_000, 3_600_000

grants = st.builds(
    RankGrant,
    room=st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True).map(RoomId),
    sid=st.from_regex(r"[A-Za-z0-9_-]{16}", fullmatch=True).map(VisitorId),
    rank=st.integers(1, 6),
    iat_ms=st.integers(0, 2**53),
    exp_ms=st.integers(0, 2**53),
)


def grant(rank: int = 5) -> RankGrant:
    return RankGrant(room=ROOM, sid=SID, rank=rank, iat_ms=1, exp_ms=2)


@pytest.mark.parametrize(
    ("said", "wish"),
    [
        ("member", Wish(1, 8 * HOUR)),
        ("prospect", Wish(2, 30 * MINUTE)),
        ("customer", Wish(3, 8 * HOUR)),
        ("subscriber", Wish(4, 8 * HOUR)),
        ("checkout", Wish(5, 30 * MINUTE)),
        ("staff", Wish(6, 8 * HOUR)),
        ("guest", Wish(0, 0)),
        (" Checkout ", Wish(5, 30 * MINUTE)),
        ("STAFF;ttl=90", Wish(6, 90_000)),
        ("staff ; TTL = 2h", Wish(6, 2 * HOUR)),
        ("staff; ttl=1h30m", Wish(6, 90 * MINUTE)),
        ("staff; ttl=1", Wish(6, MINUTE)),
        ("staff; ttl=0", Wish(6, MINUTE)),
        ("staff; ttl=250ms", Wish(6, MINUTE)),
        ("staff; ttl=25h", Wish(6, 24 * HOUR)),
        ("staff; ttl=99999999999999999999", Wish(6, 24 * HOUR)),
        ("guest; ttl=5h", Wish(0, 0)),
        ("staff; colour=red; ttl=5m; x", Wish(6, 5 * MINUTE)),
        ("staff; ttl=5m; ttl=6m", Wish(6, 6 * MINUTE)),
        ("staff;", Wish(6, 8 * HOUR)),
        ("", None),
        ("king", None),
        ("6", None),
        ("king; ttl=5m", None),
        ("staff; ttl=soon", None),
        ("staff; ttl=", None),
        ("staff; ttl", None),
        ("staff; ttl=-5", None),
        ("staff; ttl=1.5", None),
        ("guest; ttl=soon", None),
        ("staff, checkout", None),
        ("staff" + " " * 300, None),
    ],
)
def test_what_the_header_says(said: str, wish: Wish | None) -> None:
    assert read_priority(said) == wish


@given(st.text(max_size=60))
def test_no_noise_is_an_error(said: str) -> None:
    wish = read_priority(said)
    assert wish is None or wish.rank in range(7)


@given(st.integers(0, 10**18), st.sampled_from(RANKS[1:]))
def test_a_ttl_is_always_between_a_minute_and_a_day(seconds: int, rank: str) -> None:
    wish = read_priority(f"{rank}; ttl={seconds}")
    assert wish is not None
    assert wish.ttl_ms == min(max(seconds * 1000, SHORTEST_MS), LONGEST_MS)


@given(grants)
def test_what_was_signed_is_read_back(granted: RankGrant) -> None:
    value = sign_rank(KEYS, granted).encode()
    reading = read_rank(KEYS, value, granted.room, granted.sid)
    assert (reading.verdict, reading.grant) == (Verdict.VALID, granted)


@given(grants, st.data())
def test_no_altered_value_is_worth_anything(granted: RankGrant, data: st.DataObject) -> None:
    value = sign_rank(KEYS, granted).encode()
    at = data.draw(st.integers(0, len(value) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != value[at]))
    altered = value[:at] + bytes([byte]) + value[at + 1 :]
    reading = read_rank(KEYS, altered, granted.room, granted.sid)
    assert reading.grant is None
    another_key = 3 <= at < 9 and byte < 128 and byte != ord(".")
    assert reading.verdict is (Verdict.STALE if another_key else Verdict.FORGED)


@given(st.binary(max_size=400))
def test_no_noise_is_a_grant(value: bytes) -> None:
    assert read_rank(KEYS, value, ROOM, SID).grant is None


def test_wr_14_a_grant_moved_to_another_session_or_room_is_worth_nothing() -> None:
    value = sign_rank(KEYS, grant()).encode()
    assert read_rank(KEYS, value, ROOM, new_sid()).verdict is Verdict.STALE
    assert read_rank(KEYS, value, RoomId("other"), SID).verdict is Verdict.STALE


def test_a_pass_is_no_grant_and_a_grant_no_pass() -> None:
    held = Credential(kind=Kind.ADMITTED, room=ROOM, sid=SID, iat_ms=1, exp_ms=2)
    assert read_rank(KEYS, KEYS.sign(held).encode(), ROOM, SID).verdict is Verdict.FORGED
    assert KEYS.read(sign_rank(KEYS, grant()).encode(), ROOM).verdict is Verdict.FORGED


def test_grants_survive_one_rotation_and_say_that_they_want_the_new_key() -> None:
    for generation, verdict in ((3, Verdict.VALID), (2, Verdict.VALID), (1, Verdict.STALE)):
        value = sign_rank(Keyring(MASTER, generation), grant()).encode()
        reading = read_rank(KEYS, value, ROOM, SID)
        assert reading.verdict is verdict
        assert reading.current_key == (generation == 3)


def test_no_room_has_the_name_of_anothers_rank_cookie() -> None:
    assert rank_cookie_name(ROOM) == "corvus_rank_sale"
