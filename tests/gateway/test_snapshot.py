"""The configuration document: read back as written, refused when it cannot stand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from proxy.gateway.plan import compile_plan
from proxy.gateway.snapshot import (
    GatewaySettings,
    Host,
    RoomRule,
    Snapshot,
    SnapshotError,
    load,
    page_digests,
    parse,
)
from queueing.config import Mode, RoomConfig, RoomId

ROOM = RoomConfig(id=RoomId("sale"), mode=Mode.PAUSED, page="own")
HOST = Host(
    id=1,
    names=("shop.example", "*.shop.example"),
    origin="http://127.0.0.1:3000",
    rooms=(RoomRule(path="/*", room=ROOM.id),),
)
SNAPSHOT = Snapshot(
    version=7, pages="built-in", hosts=(HOST,), rooms={ROOM.id: ROOM}, settings=GatewaySettings()
)


def with_lists(**lists: Any) -> Snapshot:
    return replace(SNAPSHOT, hosts=(replace(HOST, **lists),))


def test_lists_that_stand_together_are_read_back_as_written() -> None:
    snapshot = with_lists(
        assets=("/a/*", "/a/b"),
        public_assets=("/p",),
        streams=("/s/*",),
        ban_paths=("/.env", "/.git/*"),
        return_paths=("/back",),
        allowed_origins=("https://app.example", "http://[::1]:3000"),
    )
    assert load(snapshot.dump()) == snapshot


def test_a_document_of_an_older_release_is_read_without_judging_it() -> None:
    older = with_lists(bypass=("/*",))
    assert parse(older.dump()) == older
    with pytest.raises(SnapshotError):
        load(older.dump())


def test_a_document_is_read_back_as_written() -> None:
    assert load(SNAPSHOT.dump()) == SNAPSHOT
    assert page_digests(SNAPSHOT) == {"built-in", "own"}


def test_fields_of_a_newer_release_are_ignored() -> None:
    document = json.loads(SNAPSHOT.dump())
    document["settings"]["new"] = document["hosts"][0]["new"] = document["rooms"][0]["new"] = 1
    assert load(json.dumps(document).encode()) == SNAPSHOT


@pytest.mark.parametrize(
    ("broken", "named"),
    [
        (replace(SNAPSHOT, rooms={}), "unknown room sale"),
        (replace(SNAPSHOT, hosts=(HOST, replace(HOST, id=2))), "shop.example belongs to host 1"),
        (replace(SNAPSHOT, rooms={ROOM.id: replace(ROOM, capacity=-1)}), "capacity"),
        (with_lists(assets=("/a/*",), streams=("/a/b",)), r"host 1: .*“/a/\*” \(assets\)"),
        (with_lists(assets=("/A",), streams=("/a",), path_case="insensitive"), "the same rule"),
        (with_lists(ban_paths=("/*",)), "host 1: ban_paths: .* covers the whole site"),
        (with_lists(return_paths=("/__corvus/x",)), "host 1: return_paths: .* Corvus itself"),
        (with_lists(bypass=("nothing",)), "host 1: bypass: path “nothing” is not allowed"),
        (with_lists(allowed_origins=("*",)), "host 1: allowed_origins: “\\*”"),
    ],
)
def test_what_cannot_stand_is_refused_with_its_place(broken: Snapshot, named: str) -> None:
    with pytest.raises(SnapshotError, match=named):
        load(broken.dump())


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"schema":2}', b'{"schema":1}', b"\xff"])
def test_noise_is_refused(raw: bytes) -> None:
    with pytest.raises(SnapshotError):
        load(raw)


def test_exact_names_beat_wildcards_and_the_catch_all_comes_last() -> None:
    other = Host(id=2, names=("a.shop.example",), origin="http://127.0.0.1:3001")
    rest = Host(id=3, names=("*",), origin="http://127.0.0.1:3002")
    plan = compile_plan(replace(SNAPSHOT, hosts=(HOST, other, rest)))

    def owner(name: str) -> int | None:
        site = plan.site(name)
        return site.host.id if site else None

    assert owner("shop.example") == owner("b.shop.example") == 1
    assert owner("a.shop.example") == 2
    assert owner("other.example") == owner("localhost") == 3
    assert compile_plan(SNAPSHOT).site("other.example") is None


@pytest.mark.parametrize(
    "host",
    [replace(HOST, origin="ftp://x"), replace(HOST, bypass=("nothing",))],
)
def test_a_plan_that_cannot_be_made_is_refused(host: Host) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        compile_plan(replace(SNAPSHOT, hosts=(host,)))
