"""WR-47: another site's form comes back by a page of ours, with every field, once."""

from __future__ import annotations

import html
import re
from urllib.parse import urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway.repost import MOST_FIELDS, form_fields
from tests.support.gateways import BROWSER, Gateways

BANK = {"origin": "https://bank.example", "sec-fetch-site": "cross-site"} | {
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}
FORM = {"content-type": "application/x-www-form-urlencoded"}
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


@given(st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=20))
def test_every_field_is_read_as_a_browser_sent_it(fields: list[tuple[str, str]]) -> None:
    assert form_fields(urlencode(fields).encode()) == tuple(fields)


@given(st.binary(max_size=300))
def test_whatever_comes_is_read_or_refused(body: bytes) -> None:
    fields = form_fields(body)
    assert fields is None or len(fields) <= MOST_FIELDS


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (b"", ()),
        (b"&&a&", (("a", ""),)),
        (b"a=1=2&b=%26%3D+x", (("a", "1=2"), ("b", "&= x"))),
        (b"a=%zz%4", (("a", "%zz%4"),)),
        (b"a=%ff", None),
        (b"a=\xff", None),
        (b"a=%00", None),
        (b"a&" * (MOST_FIELDS + 1), None),
    ],
)
def test_odd_forms(body: bytes, fields: tuple[tuple[str, str], ...] | None) -> None:
    assert form_fields(body) == fields


def hidden(page: str) -> list[tuple[str, str]]:
    found = re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', page)
    return [(html.unescape(name), html.unescape(value)) for name, value in found]


def come_back(world: Gateways, path: str, **request: object) -> httpx.Response:
    with world.one.client(headers=BROWSER | BANK) as stranger:
        return stranger.post(path, **request)  # type: ignore[arg-type]


def test_wr_47_a_declared_return_gets_a_page_with_the_same_fields_and_no_cookie(
    world: Gateways,
) -> None:
    world.publish(world.room(capacity=1), return_paths=("/pay/done",))
    fields = {"PaRes": "a+b/c=&<\">'", "MD": "zeile 1\r\nzeile 2", "Name": "Ünï 漢字"}
    answer = come_back(world, "/pay/done?order=7&x=%2F", data=fields)
    assert answer.status_code == 200
    assert hidden(answer.text) == list(fields.items())
    form = re.search(r'<form method="post" action="(.*?)"', answer.text)
    assert form
    assert html.unescape(form[1]) == "/pay/done?order=7&x=%2F"
    assert "set-cookie" not in answer.headers
    assert answer.headers["cache-control"] == "no-store, private"
    assert not world.origin.seen


@pytest.mark.parametrize(
    ("path", "request_"),
    [
        ("/pay/other", {"data": {"a": "b"}}),
        ("/pay/done/deeper", {"data": {"a": "b"}}),
        ("/pay/done", {"json": {"a": "b"}}),
        ("/pay/done", {"files": {"a": b"b"}}),
        ("/pay/done", {"content": b"a=b", "headers": FORM | {"content-encoding": "gzip"}}),
        ("/pay/done", {"content": b"a=%ff", "headers": FORM}),
        ("/pay/done", {"content": b"a=" + b"b" * 64 * 1024, "headers": FORM}),
        (
            "/pay/done",
            {"content": b"a=b", "headers": {"content-type": FORM["content-type"] + ";charset=x"}},
        ),
    ],
)
def test_wr_45_everything_else_from_another_site_is_told_that_it_was_not_sent(
    world: Gateways, path: str, request_: dict[str, object]
) -> None:
    world.publish(world.room(capacity=1), return_paths=("/pay/done",))
    answer = come_back(world, path, **request_)
    assert answer.status_code == 429
    assert "not sent" in answer.text
    assert "location" not in answer.headers
    assert not world.origin.seen


def test_wr_47_the_second_sending_is_never_answered_by_the_page_again(world: Gateways) -> None:
    world.publish(world.room(capacity=1), return_paths=("/pay/*",))
    own = {"origin": world.one.url, "sec-fetch-site": "same-origin", "sec-fetch-mode": "navigate"}
    with world.one.client(headers=BROWSER | own) as stranger:
        answer = stranger.post("/pay/done", data={"a": "b"})
    assert answer.status_code == 429, "who has no pass is told to wait, as WR-45 says"
    assert not hidden(answer.text)
    assert not world.origin.seen


def test_wr_47_who_has_our_cookie_is_sent_on_at_once(world: Gateways) -> None:
    world.publish(world.room(capacity=1), return_paths=("/pay/done",))
    with world.one.browser() as inside:
        inside.get("/")
        world.origin.seen.clear()
        answer = inside.post("/pay/done", data={"a": "b"}, headers=BANK)
    assert answer.text == "<h1>the shop</h1>"
    assert [(s.method, s.body) for s in world.origin.seen] == [("POST", b"a=b")]


@pytest.mark.parametrize(
    ("language", "word"),
    [
        ("de", "Weiter"),
        ("fr", "Continuer"),
        ("es", "Continuar"),
        ("ja", "続ける"),
        ("ar", "متابعة"),
    ],
)
def test_the_page_is_in_the_visitors_language(world: Gateways, language: str, word: str) -> None:
    world.publish(world.room(capacity=1), return_paths=("/pay/done",))
    with world.one.client(headers=BROWSER | BANK | {"accept-language": language}) as stranger:
        answer = stranger.post("/pay/done", data={"a": "b"})
    assert f'<button class="primary">{word}</button>' in answer.text
