"""The cookie's signature: what is read back, what is refused, and how."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queueing.config import RoomId, VisitorId
from queueing.passes import Credential, Keyring, Kind, Verdict, cookie_name, new_sid

ROOM = RoomId("sale")
MASTER = b"a master key that only this test knows"
KEYS = Keyring(MASTER, 3)

credentials = st.builds(
    Credential,
    kind=st.sampled_from(Kind),
    room=st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True).map(RoomId),
    sid=st.from_regex(r"[A-Za-z0-9_-]{16}", fullmatch=True).map(VisitorId),
    iat_ms=st.integers(0, 2**53),
    exp_ms=st.integers(0, 2**53),
)


@given(credentials, st.integers(0, 2**31))
def test_what_was_signed_is_read_back(credential: Credential, ticket: int) -> None:
    if credential.kind is Kind.QUEUED:
        credential = Credential(**{**fields(credential), "ticket": ticket})
    else:
        network = KEYS.tag(str(ticket)) if ticket % 2 else ""
        waits_for = ticket if ticket % 3 else 0
        more = {"network": network, "ticket": waits_for}
        credential = Credential(**{**fields(credential), **more})
    reading = KEYS.read(KEYS.sign(credential).encode(), credential.room)
    assert (reading.verdict, reading.credential) == (Verdict.VALID, credential)


def fields(credential: Credential) -> dict[str, object]:
    return {name: getattr(credential, name) for name in Credential.__dataclass_fields__}


@given(credentials, st.data())
def test_no_altered_value_is_valid(credential: Credential, data: st.DataObject) -> None:
    value = KEYS.sign(credential).encode()
    at = data.draw(st.integers(0, len(value) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda b: b != value[at]))
    altered = value[:at] + bytes([byte]) + value[at + 1 :]
    reading = KEYS.read(altered, credential.room)
    assert reading.credential is None
    another_key = 3 <= at < 9 and byte < 128 and byte != ord(".")
    assert reading.verdict is (Verdict.STALE if another_key else Verdict.FORGED)


@given(st.binary(max_size=400))
def test_no_noise_is_valid(value: bytes) -> None:
    assert KEYS.read(value, ROOM).credential is None


def test_the_previous_key_verifies_and_the_one_before_it_is_stale() -> None:
    mine = Credential(kind=Kind.ADMITTED, room=ROOM, sid=new_sid(), iat_ms=1, exp_ms=2)
    for generation, verdict in ((3, Verdict.VALID), (2, Verdict.VALID), (1, Verdict.STALE)):
        reading = KEYS.read(Keyring(MASTER, generation).sign(mine).encode(), ROOM)
        assert reading.verdict is verdict
        assert reading.current_key == (generation == 3)


def test_another_rooms_value_is_stale_also_when_it_was_seen_before() -> None:
    mine = Credential(kind=Kind.ADMITTED, room=ROOM, sid=new_sid(), iat_ms=1, exp_ms=2)
    value = KEYS.sign(mine).encode()
    assert KEYS.read(value, ROOM).verdict is Verdict.VALID
    assert KEYS.read(value, RoomId("other")).verdict is Verdict.STALE
    assert KEYS.read(value, ROOM).verdict is Verdict.VALID


def test_names_and_ids() -> None:
    assert cookie_name(ROOM) == "corvus_sale"
    assert len({new_sid() for _ in range(100)}) == 100
    assert KEYS.read(b"", ROOM).verdict is Verdict.MISSING


def test_wr_28_two_rotations_apart_lose_none_of_ten_thousand() -> None:
    held = [
        Credential(
            kind=Kind.QUEUED if number % 2 else Kind.ADMITTED,
            room=ROOM,
            sid=new_sid(),
            iat_ms=number,
            exp_ms=number + 1,
            ticket=number if number % 2 else 0,
        )
        for number in range(10_000)
    ]
    jar = [Keyring(MASTER, 1).sign(credential).encode() for credential in held]
    for generation in (2, 3):
        keys = Keyring(MASTER, generation)
        readings = [keys.read(value, ROOM) for value in jar]
        assert [reading.credential for reading in readings] == held
        assert not any(reading.current_key for reading in readings)
        jar = [keys.sign(credential).encode() for credential in held]  # each renews in time
    assert {Keyring(MASTER, 5).read(value, ROOM).verdict for value in jar} == {Verdict.STALE}
