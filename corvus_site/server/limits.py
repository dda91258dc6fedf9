"""The server's limits: how much of everything one client may take, and for how long.

Plain data, read from the environment; the supervisor has bounded the settings of the same names.
Sizes are bytes, durations seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from corvus_site.setting_kinds import NO_BOUNDS, READERS
from corvus_site.setting_list import SETTINGS

VARIABLES: dict[str, str] = {
    "CORVUS_MAX_HEADER_BYTES": "max_header_bytes",
    "CORVUS_MAX_HEADERS": "max_header_count",
    "CORVUS_MAX_URL": "max_url_bytes",
    "CORVUS_MAX_BODY": "max_body_bytes",
    "CORVUS_HEADER_TIMEOUT": "header_timeout_s",
    "CORVUS_BODY_TIMEOUT": "body_timeout_s",
    "CORVUS_IDLE_TIMEOUT": "idle_timeout_s",
    "CORVUS_WRITE_TIMEOUT": "write_timeout_s",
    "CORVUS_CONNECTIONS_PER_CLIENT": "connections_per_client",
    "CORVUS_DRAIN": "drain_s",
}
"""Environment variable → field of `ServerLimits`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What one connection, one request and one client may use."""

    max_header_bytes: int = 32_768  # all header lines of a request together; more is 431
    max_header_count: int = 100  # header lines of a request; more is 431
    max_url_bytes: int = 8_192  # the request target; longer is 414
    max_body_bytes: int = 0  # 0 = unlimited; more is 413
    header_timeout_s: float = 10.0  # for the whole head, from its first byte; then 408
    body_timeout_s: float = 60.0  # without one byte of an awaited body; then 408
    idle_timeout_s: float = 120.0  # between two requests of a connection
    write_timeout_s: float = 60.0  # a client that takes no byte for so long is dropped
    connections_per_client: int = 256  # per IPv4 address or IPv6 /64; 0 = unlimited
    drain_s: float = 30.0  # running exchanges get so long after SIGTERM

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> ServerLimits:
        """Read the variables of `VARIABLES` as an operator writes them; blank means unset.

        Raises ValueError that names the variable, its value and what is allowed.
        """
        values: dict[str, int | float] = {}
        for variable, field in VARIABLES.items():
            text = environ.get(variable, "").strip()
            if not text:
                continue
            setting = SETTINGS[variable]
            try:
                value = READERS[setting.kind](text, NO_BOUNDS)
            except ValueError:
                value = -1
            if value < 0:
                raise ValueError(f"{variable}: “{text}” is not allowed: use {setting.allowed}.")
            values[field] = value
        return cls(**values)  # type: ignore[arg-type]
