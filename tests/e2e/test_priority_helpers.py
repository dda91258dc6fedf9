"""Applications that rank their visitors with the documented helpers, behind a real gateway."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from corvus_site.supervisor.leash import tied_to
from queueing.config import RoomConfig, Unit
from queueing.page_builder import build_bundle
from tests.support.crowd import Reply, Visitor, until
from tests.support.gateways import Gateways, running_gateways
from tests.support.php_server import running_php
from tests.support.running import eventually
from tests.support.valkey import running_valkey

DJANGO_SITE = Path(__file__).parent / "django_site.py"


@dataclass(frozen=True)
class Site:
    """An application: where it is, and which of its pages ranks."""

    url: str
    page: str
    hold: Path  # is there while a page that was told to hold is at work


@contextlib.contextmanager
def running_django(log: Path, hold: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, DJANGO_SITE, str(port)],
            env={n: v for n, v in os.environ.items() if not n.startswith(("CORVUS_", "DJANGO_"))}
            | {"SITE_HOLD": str(hold)},
            stdout=output,
            stderr=output,
            preexec_fn=tied_to(os.getpid()),
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}/account", trust_env=False).status_code == 200
        return False

    try:
        eventually(answers, what=log.read_text)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=["django", "php"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp(request.param)
    hold = folder / "hold"
    if request.param == "django":
        with running_django(folder / "log", hold) as url:
            yield Site(url, "/account", hold)
    else:
        with running_php(folder, SITE_HOLD=str(hold)) as url:
            yield Site(url, "/account.php", hold)


@pytest.fixture(scope="module")
def world() -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 1) as running:
        yield running


@pytest.fixture
def room(world: Gateways, site: Site) -> RoomConfig:
    """A room with one slot and one of the lane."""
    room = world.room(
        capacity=1, priority_cap=1, priority_wait_ms=0, unit=Unit.REQUESTS, entries_per_minute=0
    )
    world.publish(room, origin=site.url)
    return room


async def until_free(world: Gateways, room: RoomConfig, taken: int = 0) -> None:
    async def is_so() -> bool:
        stats = await asyncio.to_thread(world.operator, room, "stats")
        return bool(stats.counts.active == taken)

    await until(is_so, what=f"{taken} slots taken")


Newcomer = Callable[[str], Awaitable[tuple[Visitor, Reply]]]


@pytest.fixture
async def newcomer(world: Gateways, room: RoomConfig) -> AsyncIterator[Newcomer]:
    """Lets somebody come for the first time to a page; gives the visitor and the page."""
    came: list[Visitor] = []

    async def come(page: str) -> tuple[Visitor, Reply]:
        await until_free(world, room)
        visitor = Visitor(world.one.port)
        came.append(visitor)
        assert (await visitor.get(page)).status == 429
        reply = await visitor.get(page)
        assert reply.status == 200, reply.body
        await until_free(world, room)
        return visitor, reply

    yield come
    for visitor in came:
        await visitor.close()


@contextlib.asynccontextmanager
async def full(
    world: Gateways, room: RoomConfig, site: Site, newcomer: Newcomer
) -> AsyncIterator[None]:
    """Somebody's long page takes the only slot meanwhile.

    The site is at work on it first: a worker of PHP's server that has accepted two connections
    serves one after the other.
    """
    other, _ = await newcomer(site.page)
    page = asyncio.create_task(other.get(f"{site.page}?hold=1"))

    async def is_at_work() -> bool:
        await asyncio.sleep(0)
        return site.hold.exists()

    await until(is_at_work, what="the long page to be at work")
    await until_free(world, room, taken=1)
    try:
        yield
        assert not page.done(), "the room was full all the time"
    finally:
        site.hold.unlink(missing_ok=True)
        page.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await page


def rank_cookie(room: RoomConfig) -> str:
    return f"corvus_rank_{room.id}"


async def test_wr_14_whom_the_application_ranks_passes_while_the_room_is_full(
    world: Gateways, room: RoomConfig, site: Site, newcomer: Newcomer
) -> None:
    customer, reply = await newcomer(f"{site.page}?as=customer")
    guest, _ = await newcomer(site.page)
    assert reply.header("corvus-priority") is None
    assert rank_cookie(room) in customer.cookies
    assert rank_cookie(room) not in guest.cookies
    async with full(world, room, site, newcomer):
        through = await customer.get(site.page)
        waits = await guest.get(site.page)
    assert (through.status, through.json["rank"]) == (200, "customer")
    assert (waits.status, waits.json["state"]) == (429, "waiting")


async def test_wr_14_the_application_sees_no_rank_and_takes_none_from_a_browser(
    world: Gateways, room: RoomConfig, site: Site, newcomer: Newcomer
) -> None:
    visitor, _ = await newcomer(f"{site.page}?as=staff")
    again = await visitor.get(site.page)
    assert [c for c in again.json["cookies"] if c.startswith("corvus_")] == []
    guest, _ = await newcomer(site.page)
    guest.headers["corvus-priority"] = "staff"
    reply = await guest.get(site.page)
    assert (reply.status, reply.json["told"]) == (200, None)
    assert rank_cookie(room) not in guest.cookies


async def test_wr_14_who_signs_out_is_a_guest_again(
    world: Gateways, room: RoomConfig, site: Site, newcomer: Newcomer
) -> None:
    visitor, _ = await newcomer(f"{site.page}?as=checkout;%20ttl=600")
    kept = dict(visitor.cookies)
    assert rank_cookie(room) in kept
    await visitor.get(f"{site.page}?as=")
    assert rank_cookie(room) not in visitor.cookies
    await until_free(world, room)
    async with full(world, room, site, newcomer):
        assert (await visitor.get(site.page)).status == 429


async def test_wr_14_a_rank_that_is_none_does_no_harm(
    world: Gateways, room: RoomConfig, site: Site, newcomer: Newcomer
) -> None:
    visitor, reply = await newcomer(f"{site.page}?as=emperor")
    assert (reply.status, reply.json["rank"]) == (200, "emperor")
    assert rank_cookie(room) not in visitor.cookies


def headers_of(site: Site, *asked: str) -> list[str | None]:
    """Ask the application itself, one page after the other, for what it says of the rank."""
    with httpx.Client(base_url=site.url, trust_env=False) as client:
        return [client.get(site.page + one).headers.get("corvus-priority") for one in asked]


def test_the_helper_speaks_of_ranked_visitors_only_and_says_once_that_the_rank_is_gone(
    site: Site,
) -> None:
    said = headers_of(site, "", "?as=member", "", "?as=checkout;ttl=90", "?as=", "", "")
    assert [s and s.replace(" ", "") for s in said] == [
        *(None, "member", "member", "checkout;ttl=90"),
        *("guest", None, None),
    ]


def test_the_helper_never_says_a_rank_that_there_is_not(site: Site) -> None:
    assert headers_of(site, "?as=emperor", "?as=guest", "") == [None, None, None]


def test_phps_helper_takes_a_rank_back_where_people_sign_out(site: Site) -> None:
    if site.page.endswith(".php"):
        assert headers_of(site, "?as=staff", "?how=clear") == ["staff", "guest"]
