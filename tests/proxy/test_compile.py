"""The compiled configuration and the fingerprint that says whether two are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy import queries, services
from proxy.compile import compile_snapshot, fingerprint
from proxy.gateway.snapshot import GatewaySettings, Host, RoomRule, Snapshot, load
from queueing.config import RoomConfig, RoomId

MAIN = RoomId("main")


def a_snapshot(**changed: Any) -> Snapshot:
    given_host = Host(
        id=1, names=("*",), origin="http://127.0.0.1:1", rooms=(RoomRule(path="/*", room=MAIN),)
    )
    values = {"hosts": (given_host,), "rooms": {MAIN: RoomConfig(id=MAIN)}, "pages": "p"}
    return Snapshot(**{**values, **changed})


@given(st.integers(0, 2**53), st.integers(0, 2**53))
def test_wr_65_number_and_time_make_no_difference(version: int, published_ms: int) -> None:
    numbered = replace(a_snapshot(), version=version, published_ms=published_ms)
    assert fingerprint(numbered) == fingerprint(a_snapshot())


@pytest.mark.parametrize(
    "changed",
    [
        {"pages": "q"},
        {"key_generation": 2},
        {"settings": GatewaySettings(retry_after_s=6)},
        {"hosts": ()},
        {"rooms": {MAIN: RoomConfig(id=MAIN, capacity=1)}},
    ],
)
def test_wr_65_whatever_else_differs_makes_another_configuration(changed: dict[str, Any]) -> None:
    assert fingerprint(a_snapshot(**changed)) != fingerprint(a_snapshot())


@pytest.mark.django_db
def test_what_is_compiled_is_what_a_gateway_reads() -> None:
    services.ensure_catch_all()
    snapshot = compile_snapshot(effective=queries.effective(), key_generation=3, pages="digest")
    assert load(snapshot.dump()) == snapshot
    assert snapshot.hosts[0].rooms == (RoomRule(path="/*", room=MAIN),)
    assert (snapshot.key_generation, snapshot.pages) == (3, "digest")
