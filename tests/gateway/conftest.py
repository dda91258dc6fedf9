"""Fixtures of the gateway's tests: two real processes before one real origin, per module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queueing.page_builder import build_bundle
from tests.support.gateways import Gateways, running_gateways
from tests.support.valkey import running_valkey


@pytest.fixture(scope="session")
def page_bundle() -> bytes:
    """Build the visitors' pages once."""
    return build_bundle()


@pytest.fixture(scope="module")
def processes(page_bundle: bytes) -> Iterator[Gateways]:
    """Two gateways on an own store."""
    with running_valkey() as valkey, running_gateways(valkey.url, page_bundle, 2) as world:
        yield world


@pytest.fixture
def world(processes: Gateways) -> Gateways:
    """The module's gateways, their origin as new; publish a room of your own in them."""
    processes.origin.clear()
    return processes
