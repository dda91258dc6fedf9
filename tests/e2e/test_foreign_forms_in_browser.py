"""Another site attacks a visitor's place, in a real Chromium with its own cookie rules."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from queueing.page_builder import build_bundle
from tests.support.gateways import running_gateways
from tests.support.valkey import running_valkey
from tests.support.waiting_browser import chromium

pytestmark = pytest.mark.browser


@contextmanager
def other_site() -> Iterator[str]:
    """Serve pages that post a form to the address in their query as soon as they are open."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = self.path.partition("?")[2]
            page = (
                f'<!doctype html><title>evil</title><form method="post" action="{target}"></form>'
                "<script>document.forms[0].submit()</script>"
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://localhost:{server.server_port}"  # another site than 127.0.0.1
    server.shutdown()
    server.server_close()
    thread.join()


def test_forged_form_of_another_site_leaves_the_place_where_it_was() -> None:
    with (
        running_valkey() as valkey,
        running_gateways(valkey.url, build_bundle(), 1) as world,
        other_site() as evil,
        chromium() as browser,
    ):
        room = world.room(capacity=0)
        world.publish(room)
        url, name = world.one.url, f"corvus_{room.id}"
        context = browser.new_context()
        page = context.new_page()
        page.goto(url + "/shop")

        def sid() -> str:
            (cookie,) = [c for c in context.cookies(url) if c["name"] == name]
            return str(cookie["value"]).split(".")[4].partition("~")[0]

        mine = sid()
        for target in ("rejoin", "leave", "extend", "beacon"):
            page.goto(f"{evil}/?{url}/__corvus/wr/{room.id}/{target}", wait_until="commit")
            page.wait_for_url(f"{url}/**")
            assert sid() == mine, target
        page.goto(f"{evil}/?{url}/shop/pay", wait_until="commit")
        page.wait_for_url(f"{url}/**")
        assert sid() == mine, "a form to any page of the site"
        status = context.request.get(f"{url}/__corvus/wr/{room.id}/status").json()
        assert (status["state"], status["position"]) == ("waiting", 1)
        context.close()
