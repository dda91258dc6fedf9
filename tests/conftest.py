"""For every test: a real Valkey, empty for each; and which tests may run side by side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.valkey import Valkey, running_valkey

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("corvus", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("corvus")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep a file in one worker, so that its processes start once; and what starts the product or
    drives a browser in one worker, one after the other.

    Not by `xdist_group`: with pytest 9.2, xdist 3.8 passes over the marks.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "product" if "/e2e/" in file or "browser" in file else file

    return ByFile(config, log)


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
