"""What is wrong with the operator's configuration, said by `manage.py check` with a hint each."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from corvus_site import env


@register()
def misspelt_names(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """W001: a `CORVUS_` variable that nothing reads."""
    return [
        Warning(
            f"{name} is set, but Corvus has no such setting.",
            hint="See docs/settings.md for the names.",
            id="corvus.W001",
        )
        for name in env.unknown_names(os.environ)
    ]


@register()
def external_store_needs_secret(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E001: an external store without a given secret: every machine would make its own."""
    own = settings.CORVUS
    if not own.value("CORVUS_REDIS_URL") or own.value("CORVUS_SECRET"):
        return []
    return [
        Error(
            "CORVUS_REDIS_URL names an external store, but CORVUS_SECRET is not set.",
            hint="Set the same CORVUS_SECRET (32 characters or more) on every machine, or passes"
            " of one machine are worth nothing on another.",
            id="corvus.E001",
        )
    ]


@register()
def secret_is_private(app_configs: Any, **kwargs: Any) -> Sequence[CheckMessage]:
    """E002: others on this machine can read the generated secret."""
    path = settings.DATA_DIR / "secret"
    if not path.exists() or not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return []
    return [
        Error(
            f"{path} can be read by other users of this machine.",
            hint=f"chmod 600 {path}",
            id="corvus.E002",
        )
    ]
