"""The gateway's Set-Cookie headers (design §5; RFC 6265bis). Pure."""

from __future__ import annotations

from proxy.gateway.exchange import Exchange, Headers
from proxy.gateway.snapshot import GatewaySettings
from queueing.config import RoomConfig
from queueing.passes import Credential, Keyring, Kind, cookie_name
from queueing.ranks import RankGrant, rank_cookie_name, sign_rank

IDENTITY_S = 24 * 3600
"""How long the browser keeps a visitor's cookie at least: long after the slot or the place, since
an expired one is still the visitor's identity (rule 6), to which a rank is bound up to a day."""

MISSED_S = 2 * 3600
"""How long after its place has gone a visitor is still told that it missed its turn."""

_PREFERENCE_S = 365 * 24 * 3600


def pass_cookie(
    exchange: Exchange,
    settings: GatewaySettings,
    keys: Keyring,
    room: RoomConfig,
    credential: Credential,
) -> Headers:
    """Hand out a signed credential."""
    life_s = (credential.exp_ms - credential.iat_ms) // 1000
    max_age = max(IDENTITY_S, life_s) if credential.kind is Kind.QUEUED else IDENTITY_S
    value = keys.sign(credential)
    return _set_cookie(exchange, settings, cookie_name(room.id), value, max_age, embed=room.embed)


def forget_cookie(exchange: Exchange, settings: GatewaySettings, room: RoomConfig) -> Headers:
    """Take the room's cookie back."""
    return _set_cookie(exchange, settings, cookie_name(room.id), "", 0, embed=room.embed)


def rank_cookie(
    exchange: Exchange,
    settings: GatewaySettings,
    keys: Keyring,
    room: RoomConfig,
    grant: RankGrant,
    now_ms: int,
) -> Headers:
    """Hand out a signed rank for as long as it lasts."""
    max_age = max(1, (grant.exp_ms - now_ms) // 1000)
    name, value = rank_cookie_name(room.id), sign_rank(keys, grant)
    return _set_cookie(exchange, settings, name, value, max_age, embed=room.embed)


def forget_rank(exchange: Exchange, settings: GatewaySettings, room: RoomConfig) -> Headers:
    """Take the visitor's rank back."""
    return _set_cookie(exchange, settings, rank_cookie_name(room.id), "", 0, embed=room.embed)


def preference_cookie(
    exchange: Exchange, settings: GatewaySettings, name: str, value: str, *, embed: bool = False
) -> Headers:
    """Remember a choice made on a visitor page (language, refresh)."""
    return _set_cookie(exchange, settings, name, value, _PREFERENCE_S, embed=embed)


def queued_life_ms(room: RoomConfig) -> int:
    """How long a cookie tells of its place: as long as that may live, and for a while after it."""
    return room.return_window_ms + room.queue_ttl_ms + MISSED_S * 1000


def cannot_be_set(exchange: Exchange, settings: GatewaySettings) -> bool:
    """Whether the operator's cookie settings rule out that this browser keeps a cookie (WR-56)."""
    if settings.secure_cookie and exchange.scheme != "https":
        return True
    folder = settings.cookie_path.rstrip("/").encode() + b"/"
    if not (exchange.path + b"/").startswith(folder):  # RFC 6265 5.1.4
        return True
    domain = settings.cookie_domain.lstrip(".").lower()
    host = exchange.visited_host
    return bool(domain) and host != domain and not host.endswith("." + domain)


def _set_cookie(
    exchange: Exchange,
    settings: GatewaySettings,
    name: str,
    value: str,
    max_age: int,
    *,
    embed: bool,
) -> Headers:
    """Give the cookie, and its twin for the gateway's own addresses where its path is another.

    In another site's frame browsers keep only a cookie that says so, and only over HTTPS (WR-55).
    """
    paths = [settings.cookie_path]
    if settings.cookie_path != "/":
        paths.append("/__corvus/")
    rest = [f"Max-Age={max_age}"]
    if settings.cookie_domain:
        rest.append(f"Domain={settings.cookie_domain}")
    secure = settings.secure_cookie or exchange.scheme == "https"
    if secure:
        rest.append("Secure")
    rest.append("HttpOnly")
    rest += ["SameSite=None", "Partitioned"] if embed and secure else ["SameSite=Lax"]
    return [
        (b"set-cookie", "; ".join([f"{name}={value}", f"Path={path}", *rest]).encode("latin-1"))
        for path in paths
    ]
