"""The settings of the main room and of the site behind the gateway.

Pure data; a part of `corvus_site.setting_list`. Bounds of room settings are those of
`queueing.config`.
"""

from __future__ import annotations

from corvus_site.setting_kinds import Bounds, Kind, Setting
from queueing.config import BOUNDS


def _room(
    name: str, kind: Kind, default: str, field: str, help_text: str, choices: tuple[str, ...] = ()
) -> Setting:
    low, high = BOUNDS.get(field, (None, None))
    if kind is Kind.DURATION and low is not None and high is not None:
        bounds = Bounds(low / 1000, high / 1000)
    else:
        bounds = Bounds(low, high, choices)
    return Setting(
        name=name, kind=kind, default=default, bounds=bounds, help=help_text, room_field=field
    )


ROOM = (
    _room(
        "CORVUS_CAPACITY",
        Kind.INTEGER,
        "434",
        "capacity",
        "How many may be inside at once: visitors, or page requests, as CORVUS_CAPACITY_UNIT says."
        " 0: hold, nobody is let in.",
    ),
    _room(
        "CORVUS_CAPACITY_UNIT",
        Kind.CHOICE,
        "visitors",
        "unit",
        "What the capacity counts: visitors (people who keep coming back) or requests (pages"
        " being worked on).",
        ("visitors", "requests"),
    ),
    _room(
        "CORVUS_ADMISSION_RATE",
        Kind.INTEGER,
        "0",
        "rate",
        "Most people let in within any one second. 0: no limit.",
    ),
    _room(
        "CORVUS_ACTIVE_TTL",
        Kind.DURATION,
        "5m",
        "active_ttl_ms",
        "How long someone inside may be idle before the slot is free for the next. At least"
        " twice CORVUS_REFRESH.",
    ),
    _room(
        "CORVUS_ABSOLUTE_TTL",
        Kind.DURATION,
        "0",
        "absolute_ttl_ms",
        "How long someone may stay inside at most, busy or not. 0: no limit.",
    ),
    _room(
        "CORVUS_REFRESH",
        Kind.DURATION,
        "15s",
        "refresh_ms",
        "How often a visitor's pass is renewed. Between renewals a request costs no look into"
        " the store.",
    ),
    _room(
        "CORVUS_GRANT_TTL",
        Kind.DURATION,
        "60s",
        "grant_ttl_ms",
        "How long a slot is kept for someone whose turn has come.",
    ),
    _room(
        "CORVUS_QUEUE_TTL",
        Kind.DURATION,
        "135s",
        "queue_ttl_ms",
        "How long someone waiting may be silent before others are let past. The number is kept."
        " Does what Concert's token-ttl and first-poll-grace did, with CORVUS_RETURN_WINDOW.",
    ),
    _room(
        "CORVUS_RETURN_WINDOW",
        Kind.DURATION,
        "10m",
        "return_window_ms",
        "How long the place of someone silent is kept, counted from the last sign of life.",
    ),
    _room(
        "CORVUS_ADMIT_TTL",
        Kind.DURATION,
        "10m",
        "admit_ttl_ms",
        "How long a pass is good when the capacity counts requests.",
    ),
    _room(
        "CORVUS_MAX_QUEUE",
        Kind.INTEGER,
        "100000",
        "max_queue",
        "Most people in the line; later ones are told that it is full. 0: no limit.",
    ),
    _room(
        "CORVUS_ENTRIES_PER_MINUTE",
        Kind.INTEGER,
        "60",
        "entries_per_minute",
        "New places that one address (one /64 for IPv6) may take in a minute. 0: no limit.",
    ),
    _room(
        "CORVUS_POLLS_PER_SECOND",
        Kind.INTEGER,
        "3",
        "polls_per_second",
        "Status checks that one visitor may make in a second.",
    ),
    _room(
        "CORVUS_ON_OUTAGE",
        Kind.CHOICE,
        "closed",
        "on_outage",
        "What newcomers meet while the store cannot be reached: closed (try again later) or open"
        " (let in at CORVUS_OPEN_RATE).",
        ("closed", "open"),
    ),
    _room(
        "CORVUS_OPEN_RATE",
        Kind.INTEGER,
        "10",
        "open_rate",
        "People let in per second and machine while the store cannot be reached and"
        " CORVUS_ON_OUTAGE is open.",
    ),
    _room(
        "CORVUS_BIND_NETWORK",
        Kind.BOOLEAN,
        "false",
        "bind_network",
        "Check a pass again when it comes from another network. The place is kept.",
    ),
    _room(
        "CORVUS_LEASE_TTL",
        Kind.DURATION,
        "30s",
        "lease_ttl_ms",
        "How long a page's slot stays taken when the gateway that served it has died. A living"
        " gateway renews it three times as often.",
    ),
    _room(
        "CORVUS_PRIORITY_CAP",
        Kind.INTEGER,
        "0",
        "priority_cap",
        "Slots of the lane, beside CORVUS_CAPACITY, for ranks and forms. 0: a quarter of the"
        " capacity.",
    ),
    _room(
        "CORVUS_PRIORITY_LANE_RANK",
        Kind.RANK,
        "3",
        "lane_rank",
        "Lowest rank that uses the lane while the room is full; 7: nobody.",
    ),
    _room(
        "CORVUS_PRIORITY_WAIT",
        Kind.DURATION,
        "5s",
        "priority_wait_ms",
        "Longest wait for a slot of the lane before a request joins the line.",
    ),
    _room(
        "CORVUS_PRIORITY_FORMS",
        Kind.BOOLEAN,
        "true",
        "priority_forms",
        "Forms of people with a pass use the lane at every rank; when it is full they are told that"
        " nothing was sent.",
    ),
    _room(
        "CORVUS_ORDER",
        Kind.CHOICE,
        "arrival",
        "order",
        "Who of the line is next: arrival (who came first) or rank (the higher rank, within"
        " CORVUS_MAX_OVERTAKE).",
        ("arrival", "rank"),
    ),
    _room(
        "CORVUS_MAX_OVERTAKE",
        Kind.INTEGER,
        "50",
        "max_overtake",
        "Percent of admissions that may go to a higher rank before the first in line, when"
        " CORVUS_ORDER is rank.",
    ),
    _room(
        "CORVUS_SHARE_GUARD",
        Kind.BOOLEAN,
        "false",
        "share_guard",
        "A pass that is used from two networks at the same moment works on the first only.",
    ),
    _room(
        "CORVUS_EMBED",
        Kind.BOOLEAN,
        "false",
        "embed",
        "Visitors come in a frame of another site; cookies are made for that. HTTPS only.",
    ),
    _room(
        "CORVUS_RATE",
        Kind.PRICE,
        "0",
        "skip_rate",
        "Price of skipping one position of the line. 0 here and in CORVUS_SURGE: nothing is"
        " offered.",
    ),
    _room(
        "CORVUS_SURGE",
        Kind.PRICE,
        "0",
        "skip_surge",
        "Added to the price of one position for each person waiting.",
    ),
    _room(
        "CORVUS_SKIP_CURRENCY",
        Kind.CURRENCY,
        "EUR",
        "skip_currency",
        "Currency of the prices.",
    ),
    _room(
        "CORVUS_SKIP_URL",
        Kind.PAGE_ADDRESS,
        "",
        "skip_url",
        "Payment page for skipping the line; the signed offer is added to it. Needed with a price.",
    ),
    _room(
        "CORVUS_PASS_DURATION",
        Kind.DURATION,
        "0",
        "vip_ttl_ms",
        "How long somebody who has paid goes to the front again whenever they wait, at least 1m."
        " 0: only once.",
    ),
)

SITE = (
    Setting(
        name="CORVUS_UPSTREAM",
        kind=Kind.ORIGIN,
        help="The site behind Corvus, such as http://127.0.0.1:3000. Empty: a demo site.",
    ),
    Setting(
        name="CORVUS_PRESERVE_HOST",
        kind=Kind.BOOLEAN,
        default="true",
        help="Send the visitor's Host header to the site, not the site's own name.",
    ),
    Setting(
        name="CORVUS_TRUSTED_PROXIES",
        kind=Kind.NETWORKS,
        default="127.0.0.1/32,::1/128",
        gateway_field="trusted_proxies",
        help="Networks of your own proxies, whose X-Forwarded-For and X-Forwarded-Proto are"
        " believed.",
    ),
    Setting(
        name="CORVUS_COOKIE_PATH",
        kind=Kind.COOKIE_PATH,
        default="/",
        gateway_field="cookie_path",
        help="Path of the gateway's cookies.",
    ),
    Setting(
        name="CORVUS_COOKIE_DOMAIN",
        kind=Kind.DOMAIN,
        gateway_field="cookie_domain",
        help="Domain of the gateway's cookies. Empty: the host that the visitor asked for.",
    ),
    Setting(
        name="CORVUS_SECURE_COOKIE",
        kind=Kind.BOOLEAN,
        default="false",
        gateway_field="secure_cookie",
        help="Always mark cookies Secure. Otherwise only for those who come by HTTPS.",
    ),
    Setting(
        name="CORVUS_RETRY_AFTER",
        kind=Kind.DURATION,
        default="5",
        bounds=Bounds(1, 3600),
        gateway_field="retry_after_s",
        help="Least time that Retry-After asks waiting clients to stay away.",
    ),
    Setting(
        name="CORVUS_PREFLIGHTS_PER_SECOND",
        kind=Kind.INTEGER,
        default="50",
        bounds=Bounds(0, 1_000_000),
        gateway_field="preflight_per_second",
        help="CORS preflights that pass a room each second, per gateway process.",
    ),
    Setting(
        name="CORVUS_API_JSON",
        kind=Kind.BOOLEAN,
        default="true",
        gateway_field="api_json",
        help="Answer clients that are no browser with JSON. Otherwise everyone gets the page.",
    ),
    Setting(
        name="CORVUS_ACCESS_LOG",
        kind=Kind.BOOLEAN,
        default="true",
        gateway_field="access_log",
        help="Write a line for each request, save assets, status checks, health checks and"
        " banned clients.",
    ),
    Setting(
        name="CORVUS_DEBUG_DECISIONS",
        kind=Kind.BOOLEAN,
        default="false",
        gateway_field="debug_decisions",
        help="Say in the header X-Corvus-Decision why a request was decided as it was.",
    ),
    Setting(
        name="CORVUS_UPSTREAM_TIMEOUT",
        kind=Kind.DURATION,
        default="30s",
        bounds=Bounds(0.1, 3600),
        gateway_field="upstream_timeout_s",
        help="How long to wait for the site to begin its answer.",
    ),
    Setting(
        name="CORVUS_CONNECT_TIMEOUT",
        kind=Kind.DURATION,
        default="5s",
        bounds=Bounds(0.1, 300),
        gateway_field="connect_timeout_s",
        help="How long to wait for a connection to the site.",
    ),
    Setting(
        name="CORVUS_DEFAULT_LANGUAGE",
        kind=Kind.CHOICE,
        default="en",
        bounds=Bounds(choices=("en", "de", "fr", "es", "ja", "ar")),
        gateway_field="default_language",
        help="Language of visitor pages when the browser asks for none that Corvus speaks.",
    ),
)
