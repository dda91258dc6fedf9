"""The compiled configuration and the fingerprint that says whether two are the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corvus_site import env
from proxy import queries, services
from proxy.compile import compile_snapshot, fingerprint, host_document
from proxy.gateway.conflicts import LABELS
from proxy.gateway.snapshot import GatewaySettings, Host, RoomRule, Snapshot, load
from proxy.models import ProxyHost
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
@pytest.mark.parametrize(
    ("environment", "cap"),
    [
        ({}, 434 * 128),
        ({"CORVUS_CAPACITY": "10", "CORVUS_ASSET_USER_CAP_H2": "20"}, 200),
        ({"CORVUS_CAPACITY": "0"}, 128),
        ({"CORVUS_CAPACITY": "2147483647"}, 2**31 - 1),
        ({"CORVUS_ASSET_CAP": "7"}, 7),
    ],
)
def test_the_asset_cap_is_derived_from_the_rooms_unless_it_is_set(
    settings: Any, environment: dict[str, str], cap: int
) -> None:
    settings.CORVUS = env.load(environment)
    services.ensure_catch_all()
    snapshot = compile_snapshot(effective=queries.effective(), key_generation=1, pages="")
    assert snapshot.settings.asset_cap == cap


@pytest.mark.django_db
def test_every_list_of_a_host_reaches_the_gateway() -> None:
    services.ensure_catch_all()
    host = ProxyHost(label="Shop", origin="http://127.0.0.1:1")
    for number, name in enumerate(LABELS):
        setattr(host, name, f"/{number}\n/{number}/*")
    host.allowed_origins = "https://a\nhttps://b"
    services.save_host(host=host, names=["shop.example"], rules=[], author="ada")
    document = host_document(host)
    for number, name in enumerate(LABELS):
        assert getattr(document, name) == (f"/{number}", f"/{number}/*")
    assert document.allowed_origins == ("https://a", "https://b")


@pytest.mark.django_db
def test_what_is_compiled_is_what_a_gateway_reads() -> None:
    services.ensure_catch_all()
    snapshot = compile_snapshot(effective=queries.effective(), key_generation=3, pages="digest")
    assert load(snapshot.dump()) == snapshot
    assert snapshot.hosts[0].rooms == (RoomRule(path="/*", room=MAIN),)
    assert (snapshot.key_generation, snapshot.pages) == (3, "digest")
