"""The settings of the catch-all host's lists of paths, and of the pools behind them.

Pure data; a part of `corvus_site.setting_list`. What a list means: `docs/tiers.md`.
"""

from __future__ import annotations

from corvus_site.setting_kinds import Bounds, Kind, Setting
from queueing.config import MAX_INT


def _paths(name: str, field: str, help_text: str, default: str = "") -> Setting:
    return Setting(name=name, kind=Kind.PATHS, default=default, host_field=field, help=help_text)


def _number(name: str, default: str, low: int, field: str, help_text: str) -> Setting:
    return Setting(
        name=name,
        kind=Kind.INTEGER,
        default=default,
        bounds=Bounds(low, MAX_INT),
        gateway_field=field,
        help=help_text,
    )


def _wait(name: str, field: str, help_text: str) -> Setting:
    return Setting(
        name=name,
        kind=Kind.DURATION,
        default="2s",
        bounds=Bounds(0, 3600),
        gateway_field=field,
        help=help_text,
    )


PATHS = (
    _paths(
        "CORVUS_BYPASS",
        "bypass",
        "Paths that never wait, separated by commas; /* at the end covers all below. They reach"
        " the site without any check: nothing that costs it work.",
        "/favicon.ico,/robots.txt,/.well-known/acme-challenge/*",
    ),
    _paths(
        "CORVUS_ASSETS",
        "assets",
        "Paths of style sheets, scripts, fonts and images. Served to people with a pass, who never"
        " wait for them; others get 403.",
    ),
    _paths(
        "CORVUS_ASSET_PUBLIC",
        "public_assets",
        "Asset paths that are served without a pass, such as pictures that other sites show.",
    ),
    _paths(
        "CORVUS_STREAM_PATHS",
        "streams",
        "Paths of WebSockets and event streams. A pass is needed; they take no page's slot.",
    ),
    _paths(
        "CORVUS_BAN_PATHS",
        "ban_paths",
        "Paths that nobody who means well asks for, such as /.env or /.git/*. They never reach the"
        " site.",
    ),
    _number(
        "CORVUS_ASSET_CAP",
        "0",
        0,
        "asset_cap",
        "Most asset requests at once, on all machines together. 0: the rooms' capacities times"
        " CORVUS_ASSET_USER_CAP_H2.",
    ),
    _wait(
        "CORVUS_ASSET_WAIT",
        "asset_wait_s",
        "Longest wait for one of CORVUS_ASSET_CAP, before 503.",
    ),
    _number(
        "CORVUS_ASSET_USER_CAP_H1",
        "8",
        1,
        "asset_user_cap_h1",
        "Asset requests at once with one pass over HTTP/1, where browsers open six connections.",
    ),
    _number(
        "CORVUS_ASSET_USER_CAP_H2",
        "128",
        1,
        "asset_user_cap_h2",
        "Asset requests at once with one pass over HTTP/2 or HTTP/3, where browsers ask for all at"
        " once.",
    ),
    _wait(
        "CORVUS_ASSET_USER_WAIT",
        "asset_user_wait_s",
        "Longest wait for a place of one's own pass, before 429.",
    ),
    _number(
        "CORVUS_STREAM_CAP",
        "1000",
        1,
        "stream_cap",
        "Most streams open at once, on all machines together.",
    ),
    Setting(
        name="CORVUS_CLIENT_PROTO_HEADER",
        kind=Kind.HEADER,
        gateway_field="client_proto_header",
        help="Header in which a proxy of CORVUS_TRUSTED_PROXIES tells the visitor's protocol, such"
        " as X-Client-Proto: HTTP/2.0. Nobody else's is believed. Empty: the connection's own"
        " protocol counts.",
    ),
)
