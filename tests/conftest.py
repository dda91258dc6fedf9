"""Fixtures for every test: one real Valkey for the whole run, empty for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.valkey import Valkey, running_valkey


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[Valkey]:
    """The server of this run (of each xdist worker); use `valkey` unless you flush it yourself."""
    with running_valkey() as valkey:
        yield valkey


@pytest.fixture
def valkey(valkey_server: Valkey) -> Valkey:
    """A real, empty Valkey: `.url` for the code under test, `.client` to look inside."""
    valkey_server.client.flushall()
    valkey_server.client.script_flush()
    return valkey_server
