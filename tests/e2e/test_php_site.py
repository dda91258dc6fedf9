"""A real PHP application behind real gateways, with a bounded crowd in front.

PHP's own diary (`php_site/site.php`) tells who was served when; the store's event log tells the
order. Both are read, so that gateway and origin must agree.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from queueing.config import RoomConfig
from queueing.page_builder import build_bundle
from tests.support.crowd import Reply, Visitor, together
from tests.support.gateways import Gateways, running_gateways
from tests.support.php_server import running_php
from tests.support.valkey import running_valkey


@dataclass
class PhpSite:
    """The running shop: its address, and what it wrote down."""

    url: str
    diary_file: Path

    def diary(self) -> list[dict[str, Any]]:
        """Read what was served so far, oldest first."""
        lines = self.diary_file.read_text().splitlines()
        return sorted((json.loads(line) for line in lines), key=lambda entry: entry["at"])


@pytest.fixture(scope="module")
def php_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhpSite]:
    folder = tmp_path_factory.mktemp("php")
    diary = folder / "diary"
    diary.touch()
    with running_php(folder, SHOP_DIARY=str(diary)) as url:
        yield PhpSite(url, diary)


@pytest.fixture(scope="module")
def processes() -> Iterator[Gateways]:
    with running_valkey() as valkey, running_gateways(valkey.url, build_bundle(), 2) as world:
        yield world


@pytest.fixture
def world(processes: Gateways, php_site: PhpSite) -> Gateways:
    php_site.diary_file.write_text("")
    return processes


@dataclass
class Shopper:
    """Somebody who does everything that the shop offers, and checks every answer."""

    name: str
    visitor: Visitor
    room: RoomConfig

    async def arrive(self) -> Reply:
        """Come with the cookie that the first answer gave."""
        assert (await self.visitor.get(f"/index.php?visitor={self.name}")).status == 429
        return await self.visitor.get(f"/index.php?visitor={self.name}")

    async def wait_for_the_turn(self) -> None:
        """Poll as the waiting page does, only more often."""
        deadline = time.monotonic() + 60
        while True:
            answer = await self.visitor.get(f"/__corvus/wr/{self.room.id}/status")
            if answer.json["state"] == "granted":
                return
            assert answer.json["state"] == "waiting", answer.json
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)

    async def shop(self) -> None:
        """Look, order by a form, follow the redirect, upload, wait for a slow page."""
        page = await self.visitor.get(f"/index.php?visitor={self.name}")
        assert page.status == 200
        assert b"<h1>Tickets</h1>" in page.body
        await self.order()
        await self.upload()
        slow = await self.visitor.get("/slow.php?ms=60")
        assert (slow.status, slow.json["slept"], slow.json["visitor"]) == (200, True, self.name)

    async def order(self) -> None:
        note = random.Random(self.name).randbytes(300)
        form = b"seats=2&note=" + quote_from_bytes(note).encode() + b"&empty=&a%5B%5D=1"
        sent = await self.post("/order.php", "application/x-www-form-urlencoded", form)
        assert (sent.status, sent.body) == (303, b"")
        thanks = await self.visitor.get(sent.header("location") or "")
        assert thanks.status == 200
        assert thanks.json["visitor"] == self.name
        assert thanks.json["orders"][-1] == {
            "seats": "2",
            "note": note.hex(),
            "raw": hashlib.sha256(form).hexdigest(),
        }

    async def upload(self) -> None:
        picture = random.Random(self.name).randbytes(90_000) + b"\r\n--\0\r\n"
        caption = 'Möwe\n"1"'.encode()
        parts = [
            b'--cut\r\nContent-Disposition: form-data; name="caption"\r\n\r\n' + caption,
            b'--cut\r\nContent-Disposition: form-data; name="picture"; filename="a b.png"\r\n'
            b"Content-Type: image/png\r\n\r\n" + picture,
            b"--cut--\r\n",
        ]
        sent = await self.post(
            "/upload.php", "multipart/form-data; boundary=cut", b"\r\n".join(parts)
        )
        assert sent.status == 200
        assert (sent.json["name"], sent.json["error"]) == ("a b.png", 0)
        assert (sent.json["size"], sent.json["sha256"]) == (
            len(picture),
            hashlib.sha256(picture).hexdigest(),
        )
        assert sent.json["caption"] == caption.hex()

    async def post(self, target: str, kind: str, body: bytes) -> Reply:
        self.visitor.headers["content-type"] = kind
        answer = await self.visitor.get(target, method="POST", body=body)
        del self.visitor.headers["content-type"]
        return answer

    async def leave(self) -> None:
        left = await self.visitor.get(f"/__corvus/wr/{self.room.id}/leave", method="POST")
        assert left.status == 200


def shoppers(world: Gateways, room: RoomConfig, count: int) -> list[Shopper]:
    ports = itertools.cycle(gateway.port for gateway in world.gateways)
    return [Shopper(f"v{number:03d}", Visitor(next(ports)), room) for number in range(count)]


def most_inside(diary: list[dict[str, Any]]) -> int:
    """Count the distinct sessions between their first and last page at the same time, at most."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for entry in diary:
        first.setdefault(entry["session"], entry["at"])
        last[entry["session"]] = entry["at"]
    steps = sorted([(at, 1) for at in first.values()] + [(at, -1) for at in last.values()])
    return max(itertools.accumulate(step for _, step in steps))


async def test_a_crowd_shops_in_order_and_never_more_sessions_than_the_capacity(
    world: Gateways, php_site: PhpSite
) -> None:
    room = world.room(capacity=4, entries_per_minute=0, polls_per_second=100)
    world.publish(room, origin=php_site.url)
    crowd = shoppers(world, room, 40)
    arrivals = [await shopper.arrive() for shopper in crowd]
    assert [a.status for a in arrivals] == [200] * 4 + [429] * 36
    assert [a.json["position"] for a in arrivals[4:]] == list(range(1, 37))

    async def visit(shopper: Shopper) -> None:
        if crowd.index(shopper) >= 4:
            await shopper.wait_for_the_turn()
        await shopper.shop()
        await shopper.leave()
        await shopper.visitor.close()

    await together(crowd, visit, width=len(crowd))
    diary = php_site.diary()
    assert len({entry["session"] for entry in diary}) == 40
    assert most_inside(diary) == 4
    granted = [
        int(fields[b"ticket"])
        for _, fields in world.redis.xrange(f"corvus:wr:{{{room.id}}}:events")
        if fields[b"kind"] == b"granted"
    ]
    assert granted == list(range(1, 37)), "in the order of arrival, nobody twice"
    served = [entry for entry in diary if entry["what"] == "begin"]
    assert len(served) == 4 + 40 * 5, "what waited never reached the shop"
    assert not [c for entry in diary for c in entry["cookies"] if c.startswith("corvus")]


async def test_a_php_session_survives_leaving_and_waiting_again(
    world: Gateways, php_site: PhpSite
) -> None:
    room = world.room(capacity=1, entries_per_minute=0, polls_per_second=100)
    world.publish(room, origin=php_site.url)
    first, second = shoppers(world, room, 2)
    assert (await first.arrive()).status == 200
    await first.order()
    await first.leave()
    assert (await second.arrive()).status == 200
    assert (await first.arrive()).json["position"] == 1
    await second.leave()
    await first.wait_for_the_turn()
    thanks = await first.visitor.get("/thanks.php")
    assert thanks.json["visitor"] == "v000"
    assert (len(thanks.json["orders"]), thanks.json["pages"]) == (1, 4)
    for shopper in (first, second):
        await shopper.visitor.close()


async def test_a_form_at_the_gate_never_reaches_php_and_works_once_inside(
    world: Gateways, php_site: PhpSite
) -> None:
    room = world.room(capacity=1, entries_per_minute=0, polls_per_second=100)
    world.publish(room, origin=php_site.url)
    first, second = shoppers(world, room, 2)
    assert (await first.arrive()).status == 200
    assert (await second.arrive()).status == 429
    refused = await second.post("/order.php", "application/x-www-form-urlencoded", b"seats=2")
    assert (refused.status, refused.json["submitted"]) == (429, False)
    assert [e["page"] for e in php_site.diary() if e["what"] == "begin"] == ["index.php"]
    await first.leave()
    await second.wait_for_the_turn()
    await second.visitor.get(f"/index.php?visitor={second.name}")
    await second.order()
    orders = [e for e in php_site.diary() if (e["what"], e["page"]) == ("begin", "order.php")]
    assert len(orders) == 1
    for shopper in (first, second):
        await shopper.visitor.close()
