"""Database, cache, channel layer and broker in Django's and Celery's terms, from Corvus's settings.

Pure but for making the data folder. No Django.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from corvus_site.env import BadSetting, HostPort

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def data_folder(path: Path | None) -> Path:
    """Make the data folder (0700) and give it.

    Raises:
        BadSetting: it cannot be made.
    """
    if path is None:
        raise BadSetting("CORVUS_DATA_DIR", "it must name a folder.")
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadSetting("CORVUS_DATA_DIR", f"“{path}” cannot be made: {error.strerror}.") from None
    return path


def embedded_store_url(folder: Path) -> str:
    """Give the address of the embedded store, for commands that the supervisor did not start."""
    return f"unix://{quote(str(folder / 'run' / 'store.sock'))}?db=0"


def console_hosts(listen: HostPort | None, given: Sequence[str]) -> list[str]:
    """Name the hosts that the console answers to; on loopback only its own (DNS rebinding)."""
    if given:
        return [*given, *_LOOPBACK]
    if listen is None or listen.is_loopback:
        return list(_LOOPBACK)
    if listen.host in ("", "0.0.0.0", "::"):  # noqa: S104 - read, not bound
        return ["*"]
    return [f"[{listen.host}]" if ":" in listen.host else listen.host, *_LOOPBACK]


def database(url: str, folder: Path) -> dict[str, Any]:
    """Give Django's description of the database; SQLite in the data folder when `url` is empty."""
    if not url or url.startswith("sqlite"):
        path = Path(unquote(urlsplit(url).path)) if url else folder / "corvus.sqlite3"
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {
                # Writers queue for the lock at once and not in the middle of a transaction.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    if not (find_spec("psycopg") or find_spec("psycopg2")):
        raise BadSetting(
            "DATABASE_URL", "PostgreSQL needs the package psycopg, which is not installed."
        )
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": dict(parse_qsl(parts.query)),
    }


def cache(store: str) -> dict[str, Any]:
    """Give the cache on the store. A store that is down is a slow cache, never an error page."""
    return {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": store,
        "KEY_PREFIX": "corvus:cache",
        "OPTIONS": {
            "IGNORE_EXCEPTIONS": True,
            "SOCKET_CONNECT_TIMEOUT": 1,
            "SOCKET_TIMEOUT": 2,
        },
    }


def channel_layer(store: str) -> dict[str, Any]:
    """Give the Channels layer on the store."""
    return {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        "CONFIG": {"hosts": [store], "prefix": "corvus:channels"},
    }


def broker(store: str) -> str:
    """Give the store as Celery's broker, in the words of kombu."""
    if store.startswith("unix://"):
        path, _, query = store.removeprefix("unix://").partition("?")
        number = dict(parse_qsl(query)).get("db", "0")
        return f"redis+socket://{path}?virtual_host={number}"
    return store
