"""What each child finds in its environment: what it needs, and no secret beyond that. No Django."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from corvus_site.env import SETTINGS, BadSetting, Effective, export_flags
from corvus_site.secrets_file import SECRET_FILE, ensure_secret, write_private
from corvus_site.supervisor import embedded_store, external_store
from corvus_site.supervisor.data_folder import DataFolder

ROOT = Path(__file__).resolve().parents[2]

GATEWAY_SECRETS = ("CORVUS_ADMIN_TOKEN", "CORVUS_PROMOTE_SECRET", "CORVUS_STRIPE_SECRET")
"""What gateways must know to recognise operators and payments, wherever the operator keeps it."""


def for_child(folder: DataFolder, effective: Effective, given: Mapping[str, str]) -> dict[str, str]:
    """Give the operator's environment with what was decided here; `given` are the flags.

    Raises:
        BadSetting: the secret cannot be kept in the data folder.
    """
    environ = {n: v for n, v in os.environ.items() if n != "CORVUS_SECRET"}
    handed = dict(given)
    if "CORVUS_DATA_DIR" in handed:
        handed["CORVUS_DATA_DIR"] = str(folder.path)
    environ |= export_flags(handed)
    environ["CORVUS_DATA_DIR"] = str(folder.path)
    environ["CORVUS_MACHINE_DIR"] = str(folder.run)
    environ["CORVUS_SECRET_FILE"] = str(_secret_file(folder, effective))
    environ["CORVUS_STORE_URL"] = external_store.plain_url(
        effective.value("CORVUS_REDIS_URL")
    ) or embedded_store.store_url(folder.run)
    environ["DJANGO_SETTINGS_MODULE"] = "corvus_site.settings"
    environ["PYTHONUNBUFFERED"] = "1"
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environ.get("PYTHONPATH")]))
    return environ


def for_gateway(environ: Mapping[str, str], effective: Effective) -> dict[str, str]:
    """Give what a gateway needs: no database, no setup token; limits as plain bytes and seconds."""
    kept = ("CORVUS_SECRET_FILE",)
    own = {n: v for n, v in environ.items() if n not in _secret_names() or n in kept}
    limits = [s.name for s in effective.settings() if s.group == "Limits"] + ["CORVUS_DRAIN"]
    own |= {name: f"{effective.value(name):.12g}" for name in limits}
    own |= {name: effective.value(name) for name in ("CORVUS_LOG_FORMAT", "CORVUS_LOG_LEVEL")}
    own |= {name: secret for name in GATEWAY_SECRETS if (secret := effective.value(name))}
    return own


def for_stranger(environ: Mapping[str, str]) -> dict[str, str]:
    """Give what a program needs that is no part of Corvus: nothing of Corvus's."""
    names = SETTINGS.keys() | _secret_names()
    return {n: v for n, v in environ.items() if not n.startswith("CORVUS_") and n not in names}


def _secret_names() -> set[str]:
    secrets = {s.name for s in SETTINGS.values() if s.secret}
    return secrets | {f"{name}_FILE" for name in secrets}


def _secret_file(folder: DataFolder, effective: Effective) -> Path:
    """Put the secret where children can read it and no process list shows it."""
    try:
        if secret := effective.value("CORVUS_SECRET"):
            write_private(folder.run / SECRET_FILE, secret)
            return folder.run / SECRET_FILE
        ensure_secret(folder.path)
    except OSError as error:
        raise BadSetting(
            "CORVUS_DATA_DIR", f"the secret cannot be kept there: {error.strerror}."
        ) from None
    return folder.path / SECRET_FILE
