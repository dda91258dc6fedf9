"""The visitor's one cookie per room: signing, reading, keys. Pure: no Django, no store, no clock.

The value is `v2.<kid>.<kind>.<room>.<sid>.<iat>.<exp>.<hmac>` (design §5): `kid` names the signing
key, `kind` is `q` (in line), `a` (admitted) or `o` (let in during an outage), `iat` and `exp` are
store-time milliseconds. The sid field is the visitor's 16 characters, then `~` and its ticket (kind
`q`, once it has one: the sealed number that outlives the store) or its network (when bound). A pass
whose visitor waits for another page (unit `requests`) is followed by both: `~network~ticket`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from queueing.config import RoomId, VisitorId

_LONGEST = 320  # bytes; a real value is under 190
_FIELDS = 5  # of a credential: kind, room, sid, iat, exp


class Kind(StrEnum):
    """What a cookie says of its visitor."""

    QUEUED = "q"
    ADMITTED = "a"
    OUTAGE = "o"


class Verdict(Enum):
    """How a presented value was judged."""

    VALID = "valid"  # rightly signed for this room; may have expired: the caller has the clock
    MISSING = "missing"
    STALE = "stale"  # another key or another room: never held against the visitor (WR-36)
    FORGED = "forged"  # a known key id, and the rest does not fit it


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What a rightly signed cookie says. Times are store-time milliseconds."""

    kind: Kind
    room: RoomId
    sid: VisitorId
    iat_ms: int
    exp_ms: int
    ticket: int = 0  # the number that the visitor was given, while it waits; 0 = none
    network: str = ""  # tag of the network that the pass is bound to; "" = not bound


@dataclass(frozen=True, slots=True)
class Reading:
    """A presented value with its verdict; `credential` is there exactly when it is valid."""

    verdict: Verdict
    credential: Credential | None = None
    current_key: bool = False  # signed by the key that signs now; else re-sign at the next chance


@dataclass(frozen=True, slots=True)
class Sealed:
    """The fields of a rightly signed value, of whatever kind."""

    fields: list[str]
    current_key: bool


MISSING = Reading(Verdict.MISSING)
STALE = Reading(Verdict.STALE)
FORGED = Reading(Verdict.FORGED)
_REFUSED = {Verdict.MISSING: MISSING, Verdict.STALE: STALE, Verdict.FORGED: FORGED}


def new_sid() -> VisitorId:
    """Make a visitor id of 96 random bits."""
    return VisitorId(secrets.token_urlsafe(12))


def cookie_name(room: RoomId) -> str:
    """Name the room's cookie."""
    return f"corvus_{room}"


def network_tag(secret: bytes, network: str) -> str:
    """Shorten a network (`203.0.113.0/24`) to six characters that do not tell it."""
    digest = hmac.digest(secret, b"corvus network " + network.encode(), "sha256")
    return base64.urlsafe_b64encode(digest)[:6].decode()


@dataclass(frozen=True, slots=True)
class _Key:
    kid: str
    secret: bytes


_PASSES = b"corvus pass v2 "


def _derive(master: bytes, generation: int, purpose: bytes) -> _Key:
    label = str(generation).encode()
    kid = base64.urlsafe_b64encode(hmac.digest(master, b"corvus kid " + label, "sha256"))[:6]
    # A "." would split the value in the wrong place; base64url has none.
    return _Key(kid.decode(), hmac.digest(master, purpose + label, "sha256"))


class Keyring:
    """The keys of a generation and of the one before it: both verify, the newer one signs."""

    def __init__(self, master: bytes, generation: int) -> None:
        self._master = master
        self.generation = generation
        living = (generation, generation - 1) if generation > 1 else (generation,)
        self._keys = {k.kid: k for k in (_derive(master, g, _PASSES) for g in living)}
        self._current = next(iter(self._keys.values()))
        self._living = living
        self._derived: dict[bytes, dict[str, bytes]] = {}

    def sign(self, credential: Credential) -> str:
        """Write a cookie value."""
        ticket = str(credential.ticket) if credential.ticket else ""
        if credential.kind is not Kind.QUEUED:
            ticket = f"{credential.network}~{ticket}" if ticket else credential.network
        sid = f"{credential.sid}~{ticket}" if ticket else credential.sid
        return self.seal(
            "v2",
            f"{credential.kind}.{credential.room}.{sid}.{credential.iat_ms}.{credential.exp_ms}",
        )

    def seal(self, version: str, fields: str) -> str:
        """Write a signed value of any kind; `version` tells the kinds apart."""
        body = f"{version}.{self._current.kid}.{fields}"
        return f"{body}.{_mac(self._current.secret, body.encode())}"

    def unseal(self, version: str, value: bytes, count: int) -> Sealed | Verdict:
        """Give the `count` fields of a value that we signed, else why it is none of ours."""
        if not value:
            return Verdict.MISSING
        if len(value) > _LONGEST:
            return Verdict.FORGED
        body, _, mac = value.rpartition(b".")
        try:
            kind, kid, *fields = body.decode("ascii").split(".")
        except ValueError:
            return Verdict.FORGED
        if len(fields) != count:
            return Verdict.FORGED
        key = self._keys.get(kid)
        if key is None:
            return Verdict.STALE
        if not hmac.compare_digest(_mac(key.secret, body).encode(), mac) or kind != version:
            return Verdict.FORGED
        return Sealed(fields, key is self._current)

    def read(self, value: bytes, room: RoomId) -> Reading:
        """Judge a presented value."""
        reading = self._read(value)
        if reading.credential is not None and reading.credential.room != room:
            return STALE
        return reading

    def tag(self, network: str) -> str:
        """Give the tag under which a pass is bound to a network; it survives key rotation."""
        return network_tag(self._master, network)

    def derived(self, purpose: bytes) -> Mapping[str, bytes]:
        """Give the keys of another purpose by key id, the one that signs first."""
        if purpose not in self._derived:
            keys = [_derive(self._master, g, purpose) for g in self._living]
            self._derived[purpose] = {key.kid: key.secret for key in keys}
        return self._derived[purpose]

    def current(self, purpose: bytes) -> tuple[str, bytes]:
        """Give key id and key that sign for another purpose now."""
        return next(iter(self.derived(purpose).items()))

    def _read(self, value: bytes) -> Reading:
        sealed = self.unseal("v2", value, _FIELDS)
        if isinstance(sealed, Verdict):
            return _REFUSED[sealed]
        return Reading(Verdict.VALID, _credential(*sealed.fields), sealed.current_key)


def _mac(secret: bytes, body: bytes) -> str:
    digest = hmac.digest(secret, body, hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _credential(kind: str, room: str, sid: str, iat: str, exp: str) -> Credential:
    """Build from the fields of a value whose signature was checked; we wrote them ourselves."""
    identity, _, extra = sid.partition("~")
    network, _, ticket = ("", "", extra) if kind == Kind.QUEUED else extra.partition("~")
    return Credential(
        kind=Kind(kind),
        room=RoomId(room),
        sid=VisitorId(identity),
        iat_ms=int(iat),
        exp_ms=int(exp),
        ticket=int(ticket) if ticket else 0,
        network=network,
    )
