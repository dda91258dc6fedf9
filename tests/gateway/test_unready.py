"""A gateway process that has no configuration yet: alive, not ready, and telling nobody why."""

from __future__ import annotations

from pathlib import Path

from proxy.gateway.app import Gateway
from proxy.gateway.resources import GatewayEnvironment
from proxy.gateway.snapshot import SNAPSHOT_KEY, VERSION_KEY
from tests.support.asgi_driver import Conversation, http_scope
from tests.support.valkey import Valkey


async def ask(gateway: Gateway, path: bytes) -> tuple[int, bytes]:
    talk = Conversation(gateway, http_scope(target=path))
    await talk.result()
    return talk.status, talk.body


async def test_without_a_configuration_it_is_alive_and_not_ready(
    valkey: Valkey, tmp_path: Path
) -> None:
    valkey.client.set(SNAPSHOT_KEY, b'{"schema": "a secret place"}')
    valkey.client.set(VERSION_KEY, b"seven")
    gateway = Gateway(
        lambda: GatewayEnvironment(
            store_url=valkey.url, secret=b"x" * 32, data_dir=None, machine_dir=tmp_path
        )
    )
    try:
        assert await ask(gateway, b"/__corvus/healthz") == (200, b"ok\n")
        for path in (b"/__corvus/readyz", b"/", b"/__corvus/stats"):
            status, body = await ask(gateway, path)
            assert status == 503
            assert b"secret" not in body
    finally:
        await gateway.close()
