"""Whether the operator's own Redis or Valkey is fit to hold the line, asked once at the start."""

from __future__ import annotations

import contextlib

from corvus_site.env import BadSetting
from queueing.connection import Connection, StoreBusy, StoreError, StoreFault

SETTING = "CORVUS_REDIS_URL"
OLDEST_VERSION = (6, 2)
SCHEMES = {"valkey": "redis", "valkeys": "rediss"}


def plain_url(url: str) -> str:
    """Give the URL with the scheme that every client here understands."""
    scheme, separator, rest = url.partition("://")
    return f"{SCHEMES.get(scheme, scheme)}{separator}{rest}"


async def examine(url: str) -> list[str]:
    """Ask the store; give a sentence for each thing that puts places at risk.

    Raises:
        BadSetting: it cannot be reached or used at all.
    """
    try:
        store = Connection(plain_url(url), timeout_s=5, connect_timeout_s=5)
    except ValueError as error:
        raise BadSetting(SETTING, f"{error}.") from None
    try:
        return await _examine(store)
    except (StoreError, StoreBusy) as error:
        raise BadSetting(SETTING, f"the store cannot be used: {error}.") from None
    finally:
        await store.close()


async def _examine(store: Connection) -> list[str]:
    found = []
    info = _fields(await store.call("INFO", "server"))
    version = info.get("valkey_version") or info.get("redis_version", "0")
    if _numbers(version) < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise StoreFault(f"its version {version} is older than {oldest}")
    memory = _fields(await store.call("INFO", "memory"))
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            f"{SETTING}: maxmemory-policy is {policy}: when its memory is full it drops people from"
            " the line. Set it to noeviction."
        )
    persistence = _fields(await store.call("INFO", "persistence"))
    if persistence.get("aof_enabled") == "0":
        found.append(
            f"{SETTING}: the store keeps no append-only file: a restart of it loses the line."
        )
    return found


def _fields(reply: object) -> dict[str, str]:
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else ""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value.strip() for name, _, value in pairs}


def _numbers(version: str) -> tuple[int, ...]:
    numbers: list[int] = []
    with contextlib.suppress(ValueError):
        numbers.extend(int(part) for part in version.split("."))
    return tuple(numbers)
