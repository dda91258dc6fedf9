"""Every setting of Corvus, declared once: name, kind, default, bounds, help, restart.

Pure data. `corvus_site.env` reads values for them; `.env.example` and `docs/settings.md` are
written from them.
"""

from __future__ import annotations

from dataclasses import replace

from corvus_site.setting_kinds import Bounds, Kind, Setting
from corvus_site.setting_list_paths import PATHS
from corvus_site.setting_list_site import ROOM, SITE

_STORES = ("redis", "rediss", "unix")

_PROCESSES = (
    Setting(
        name="CORVUS_LISTEN",
        kind=Kind.ADDRESS,
        default=":8080",
        restart=True,
        help="Where visitors reach the gateway by HTTP.",
    ),
    Setting(
        name="CORVUS_LISTEN_TLS",
        kind=Kind.ADDRESS,
        restart=True,
        help="Where visitors reach the gateway by HTTPS (HTTP/1.1 and HTTP/2). Empty: no HTTPS"
        " listener.",
    ),
    Setting(
        name="CORVUS_TLS_CERT",
        kind=Kind.PATH,
        restart=True,
        help="File with the certificate chain (PEM) for CORVUS_LISTEN_TLS.",
    ),
    Setting(
        name="CORVUS_TLS_KEY",
        kind=Kind.PATH,
        restart=True,
        help="File with the private key (PEM) for CORVUS_LISTEN_TLS.",
    ),
    Setting(
        name="CORVUS_CONSOLE_LISTEN",
        kind=Kind.ADDRESS,
        default="127.0.0.1:8081",
        restart=True,
        help="Where operators reach the console. Visitors' addresses never show it.",
    ),
    Setting(
        name="CORVUS_CONSOLE_HOSTS",
        kind=Kind.HOSTS,
        restart=True,
        help="Names by which operators may address the console, separated by commas. Empty:"
        " localhost, loopback addresses and the host of CORVUS_CONSOLE_LISTEN; any name when that"
        " is every interface.",
    ),
    Setting(
        name="CORVUS_LOG_FORMAT",
        kind=Kind.CHOICE,
        default="text",
        bounds=Bounds(choices=("text", "json")),
        restart=True,
        help="How log lines are written: text for people, json for machines.",
    ),
    Setting(
        name="CORVUS_LOG_LEVEL",
        kind=Kind.CHOICE,
        default="info",
        bounds=Bounds(choices=("debug", "info", "warning", "error")),
        restart=True,
        help="The least grave log lines that are written.",
    ),
    Setting(
        name="CORVUS_DATA_DIR",
        kind=Kind.PATH,
        default="./data",
        restart=True,
        help="Folder for the database, the embedded store, the generated secret and the last"
        " configuration.",
    ),
    Setting(
        name="CORVUS_GATEWAYS",
        kind=Kind.INTEGER,
        default="0",
        bounds=Bounds(0, 256),
        restart=True,
        help="How many gateway processes share the listeners. 0: one for each processor core.",
    ),
    Setting(
        name="CORVUS_DRAIN",
        kind=Kind.DURATION,
        default="30s",
        bounds=Bounds(0, 3600),
        restart=True,
        help="How long exchanges that are under way may still run when Corvus is told to stop.",
    ),
    Setting(
        name="CORVUS_REAPER",
        kind=Kind.DURATION,
        default="36s",
        bounds=Bounds(5, 86400),
        restart=True,
        help="How often the background worker clears away what nobody uses any more: people who"
        " have gone from rooms that no gateway serves, rooms that were deleted, machines that have"
        " gone.",
    ),
    Setting(
        name="CORVUS_DEMO_LISTEN",
        kind=Kind.ADDRESS,
        default="127.0.0.1:8090",
        restart=True,
        help="Where the demo site listens that stands in while CORVUS_UPSTREAM is empty.",
    ),
    Setting(
        name="CORVUS_REDIS_URL",
        kind=Kind.URL,
        restart=True,
        bounds=Bounds(choices=_STORES),
        help="The Redis or Valkey that holds the line. Empty: one is started in the data folder.",
    ),
    Setting(
        name="CORVUS_BROKER_URL",
        kind=Kind.URL,
        restart=True,
        bounds=Bounds(choices=("redis", "rediss", "redis+socket", "sentinel", "amqp", "amqps")),
        help="Message broker of the background worker. Empty: the store.",
    ),
    Setting(
        name="DATABASE_URL",
        kind=Kind.URL,
        restart=True,
        bounds=Bounds(choices=("postgres", "postgresql", "sqlite")),
        help="Database of the console. Empty: SQLite in the data folder.",
    ),
)

_SECRETS = (
    Setting(
        name="CORVUS_SECRET",
        kind=Kind.SECRET,
        bounds=Bounds(32),
        restart=True,
        help="Master key of passes and tickets, at least 32 characters. Empty: one is generated"
        " into the data folder. Every machine that shares a store needs the same one.",
    ),
    Setting(
        name="CORVUS_SETUP_TOKEN",
        kind=Kind.SECRET,
        bounds=Bounds(12),
        restart=True,
        help="Opens the first-run page, once, at least 12 characters. Empty: one is generated"
        " and printed.",
    ),
    Setting(
        name="CORVUS_ADMIN_TOKEN",
        kind=Kind.SECRET,
        bounds=Bounds(12),
        restart=True,
        help="Bearer token of the gateway's operator addresses (/__corvus/stats, cap, abuse), at"
        " least 12 characters. Empty: those addresses answer 404.",
    ),
    Setting(
        name="CORVUS_PROMOTE_SECRET",
        kind=Kind.SECRET,
        bounds=Bounds(32),
        restart=True,
        help="Signs the calls of your payment flow that move a visitor to the front"
        " (/__corvus/wr/<room>/promote), at least 32 characters. Empty: that address answers 404.",
    ),
    Setting(
        name="CORVUS_STRIPE_SECRET",
        kind=Kind.SECRET,
        bounds=Bounds(12),
        restart=True,
        help="Signing secret of the Stripe webhook (whsec_…) that moves a visitor to the front once"
        " the payment has come. Empty: Stripe's calls are answered 404.",
    ),
)


def _limit(name: str, kind: Kind, default: str, low: float, high: float, help_text: str) -> Setting:
    return Setting(
        name=name,
        kind=kind,
        default=default,
        bounds=Bounds(low, high),
        restart=True,
        help=help_text,
    )


_LIMITS = (
    _limit(
        "CORVUS_MAX_HEADER_BYTES",
        Kind.SIZE,
        "32KB",
        1024,
        1 << 20,
        "Most bytes of a request's headers.",
    ),
    _limit("CORVUS_MAX_HEADERS", Kind.INTEGER, "100", 10, 10_000, "Most headers of a request."),
    _limit("CORVUS_MAX_URL", Kind.SIZE, "8KB", 256, 1 << 20, "Most bytes of a request's URL."),
    _limit(
        "CORVUS_MAX_BODY",
        Kind.SIZE,
        "0",
        0,
        1 << 50,
        "Most bytes of a request's body. 0: no limit.",
    ),
    _limit(
        "CORVUS_HEADER_TIMEOUT", Kind.DURATION, "10s", 0.1, 3600, "Time to send all headers in."
    ),
    _limit(
        "CORVUS_BODY_TIMEOUT", Kind.DURATION, "60s", 0.1, 86400, "Longest silence within a body."
    ),
    _limit(
        "CORVUS_IDLE_TIMEOUT",
        Kind.DURATION,
        "120s",
        0.1,
        86400,
        "Longest silence between requests.",
    ),
    _limit(
        "CORVUS_WRITE_TIMEOUT",
        Kind.DURATION,
        "60s",
        0.1,
        86400,
        "Longest time without taking bytes.",
    ),
    _limit(
        "CORVUS_CONNECTIONS_PER_CLIENT",
        Kind.INTEGER,
        "256",
        0,
        1_000_000,
        "Most connections at once from one address, per gateway process. 0: no limit.",
    ),
)


def _grouped(*groups: tuple[str, tuple[Setting, ...]]) -> dict[str, Setting]:
    return {s.name: replace(s, group=group) for group, members in groups for s in members}


SETTINGS: dict[str, Setting] = _grouped(
    ("Waiting room", ROOM),
    ("Site and visitors", SITE),
    ("Paths and pools", PATHS),
    ("Processes and storage", _PROCESSES),
    ("Secrets", _SECRETS),
    ("Limits", _LIMITS),
)
