"""The data plane's ASGI entry: the gateway, told what it needs by environment variables.

The supervisor sets them (`supervisor/child_environment.py`); this process imports no Django.
"""

from __future__ import annotations

import os
from pathlib import Path

from corvus_site.logs import configure
from proxy.gateway.app import Gateway
from proxy.gateway.resources import GatewayEnvironment


def environment() -> GatewayEnvironment:
    """Read what the supervisor handed over."""
    data_dir = os.environ.get("CORVUS_DATA_DIR", "")
    machine_dir = os.environ.get("CORVUS_MACHINE_DIR", "") or f"{data_dir or '.'}/run"
    secret = os.environ.get("CORVUS_SECRET", "")
    secret_file = os.environ.get("CORVUS_SECRET_FILE", "")
    if not secret and secret_file:
        secret = Path(secret_file).read_text(encoding="utf-8").strip()
    return GatewayEnvironment(
        store_url=os.environ["CORVUS_STORE_URL"],
        secret=secret.encode(),
        data_dir=Path(data_dir) if data_dir else None,
        machine_dir=Path(machine_dir),
        admin_token=os.environ.get("CORVUS_ADMIN_TOKEN", ""),
        promote_secret=os.environ.get("CORVUS_PROMOTE_SECRET", ""),
        stripe_secret=os.environ.get("CORVUS_STRIPE_SECRET", ""),
    )


configure(
    "json" if os.environ.get("CORVUS_LOG_FORMAT") == "json" else "text",
    os.environ.get("CORVUS_LOG_LEVEL") or "info",
)
application = Gateway(environment)
