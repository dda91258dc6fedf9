"""An operator's own template: what is refused, where, and what a good one becomes."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.page_builder import build_bundle, csp_hash
from queueing.page_check import MAX_BYTES, TemplateProblem, check, compile_template
from queueing.pages import BundleError, PageBundle, PageState
from tests.support.page_server import waiting_view

GOOD = """<!doctype html>
<html lang="fr">
<head>
<title>{{room}} : {{position}}</title>
<style>body { background: #fff }</style>
</head>
<body>
<h1 style="color:#123456">{{heading}}</h1>
<p title="{{ahead}}">{{position}} / {{ waiting }}, {{.Position}}, {{eta}}, {{message}}</p>
<img alt="" src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">
<form method="post" action="{{leave_url}}"><button>Sortir</button></form>
<p><a href="{{.SkipURL}}">Passer</a> <a href="https://help.example/">Aide</a></p>
<script>document.body.dataset.own = "1"</script>
<!-- {{not_read}} -->
</body>
</html>
"""


@pytest.fixture(scope="module")
def bundle() -> PageBundle:
    return PageBundle.load(build_bundle())


def page_with(line: str) -> str:
    """Put one line at line 8 of a page that is otherwise good."""
    return GOOD.replace('<h1 style="color:#123456">{{heading}}</h1>', line)


def test_a_good_page_has_no_problems() -> None:
    assert check(GOOD) == []
    assert check(GOOD.encode()) == []
    assert check(GOOD.replace("\n", "\r\n").encode()) == []


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('<link rel="stylesheet" href="/style.css">', "href=“/style.css” would be fetched"),
        ('<link rel=stylesheet href="https://cdn.example/a.css">', "would be fetched"),
        ('<img src="logo.png" alt="">', "would be fetched"),
        ('<img srcset="//cdn.example/a.png 2x" alt="">', "would be fetched"),
        ('<script src="https://cdn.example/a.js"></script>', "would be fetched"),
        ('<video poster="/a.jpg"></video>', "would be fetched"),
        ('<form action="https://evil.example/"></form>', "would be fetched"),
        ('<style>@import "x.css";</style>', "fetches a file"),
        ("<style>p{background:url( '/a.png')}</style>", "fetches a file"),
        ('<p style="background:url(https://cdn.example/a.png)">', "fetches a file"),
        ('<iframe src="/x"></iframe>', "<iframe> is not allowed"),
        ('<base href="/x/">', "<base> is not allowed"),
        ('<meta http-equiv="refresh" content="5">', "a refresh of its own"),
        ('<p onclick="x()">', "onclick does not run here"),
        ('<a href="javascript:x()">x</a>', "is not allowed"),
        ("<p>{{positon}}</p>", "{{positon}} is not known"),
        ("<p>{{.Rank}}</p>", "{{.Rank}} is not known"),
        ('<a href="{{message}}">x</a>', "one whole placeholder"),
        ('<a href="/x?p={{position}}">x</a>', "one whole placeholder"),
        ("<p title={{message}}>", "inside a quoted attribute"),
        ("<p {{message}}>", "inside a quoted attribute"),
        ("<script>var p = {{position}}</script>", "a placeholder inside <script>"),
        ("<style>p{width:{{position}}px}</style>", "a placeholder inside <style>"),
        ('<p style="width:{{position}}px">', "in a style attribute"),
        ("<p>⟪js⟫</p>", "is reserved"),
    ],
)
def test_wr_52_what_may_not_stand_in_a_template_is_refused_with_its_line(
    line: str, part: str
) -> None:
    problems = check(page_with(line))
    assert problems
    assert {p.line for p in problems} == {8}
    assert part in " ".join(p.message for p in problems)
    with pytest.raises(ValueError, match="line 8: "):
        compile_template(page_with(line))


@pytest.mark.parametrize(
    ("page", "part"),
    [
        (GOOD.replace(' lang="fr"', ""), "name the page's language"),
        (GOOD.replace("<head>", "").replace("</head>", ""), "needs a <head>"),
        (GOOD.replace("{{room}} : {{position}}", " "), "needs a <title>"),
        (re.sub(r"\{\{\s*\.?(position|Position|ahead)\s*\}\}", "7", GOOD), "must show the place"),
        ("", "needs a <head>"),
        (GOOD.replace("</script>", ""), "<script> is not closed"),
        (b"<html>\n\n\xff", "is not UTF-8"),
        ("x" * (MAX_BYTES + 1), "too large"),
    ],
)
def test_what_a_page_must_have_is_named(page: str | bytes, part: str) -> None:
    assert part in " ".join(p.message for p in check(page))


def test_a_broken_byte_is_named_with_its_line() -> None:
    assert check(b"<html>\n\n\xff")[0].line == 3


@settings(deadline=None)
@given(st.text(alphabet="<>/=\"'{}. \n!-abhimgscrlinkonpositionstyle", max_size=120))
def test_any_text_gets_an_answer_and_what_passes_compiles(text: str) -> None:
    for page in (text, page_with(text)):
        problems = check(page)
        assert all(isinstance(p, TemplateProblem) and p.line >= 1 for p in problems)
        if not problems:
            json.dumps(compile_template(page))


def test_a_template_shows_the_place_in_its_own_language_and_stays_live(
    bundle: PageBundle,
) -> None:
    compiled = json.loads(json.dumps(compile_template(GOOD)))
    own = bundle.with_template(compiled)
    rendered = own.render(waiting_view(message="<b>", room="Été"), "de")
    page = rendered.body.decode()
    assert "<title>Été : 1\u202f234</title>" in page
    assert '<span data-c="position">1\u202f234</span> / ' in page
    assert '<p title="1\u202f233">' in page
    assert "&lt;b&gt;" in page
    assert 'action="/__corvus/wr/main/leave"' in page
    assert "{{not_read}}" in page  # a comment is left alone
    assert page.count('http-equiv="refresh"') == 1
    headers = dict(rendered.headers)
    assert headers[b"content-language"] == b"fr"
    csp = headers[b"content-security-policy"].decode()
    for part in ('document.body.dataset.own = "1"', "body { background: #fff }", "color:#123456"):
        assert csp_hash(part) in csp
    for body in re.findall("<(?:script|style)>(.*?)</(?:script|style)>", page, re.DOTALL):
        assert csp_hash(body) in csp
    assert "'unsafe-hashes'" in csp
    assert "unsafe-inline" not in csp


def test_a_template_is_used_only_while_a_place_is_held(bundle: PageBundle) -> None:
    own = bundle.with_template(compile_template(GOOD))
    for state in PageState:
        page = own.render(waiting_view(state=state), "de").body.decode()
        in_line = state in ("waiting", "parked", "paused", "prequeue", "hold")
        assert ("dataset.own" in page) == in_line
    assert bundle.with_template(None) is bundle


@pytest.mark.parametrize("compiled", [{}, {"template": "⟪?x⟫"}, {"template": 1}])
def test_a_form_that_was_not_compiled_is_refused(
    bundle: PageBundle, compiled: dict[str, object]
) -> None:
    with pytest.raises(BundleError):
        bundle.with_template(compiled)
