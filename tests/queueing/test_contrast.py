"""Colours of an operator's own page that nobody could read are refused (WCAG 2.2, 1.4.3)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueing.contrast import Colour, nearest, ratio, read_colour, unreadable
from queueing.page_check import check

PAGE = """<!doctype html><html lang="en"><head><title>x</title>
<style>
p { margin: 0 }
%s
</style></head><body><p>{{position}}</p></body></html>
"""
colours = st.builds(Colour, *[st.integers(0, 255)] * 3)


def test_wr_75h_an_own_page_with_faint_text_is_refused_with_ratio_and_remedy() -> None:
    (problem,) = check(PAGE % "h1 { color: #999; background: #FFFFFF }")
    assert problem.line == 4
    found = re.search(
        r"contrast of (\S+):1; at least 4.5:1 is needed, and (#\w+) is", problem.message
    )
    assert found
    assert found[1] == "2.84"
    assert check(PAGE % f"h1 {{ color: {found[2]}; background: #fff }}") == []
    in_tag = PAGE.replace("<p>", '<p style="color:grey;background-color:rgb(130, 130, 130)">') % ""
    assert [p.line for p in check(in_tag)] == [5]


@pytest.mark.parametrize(
    "rule",
    [
        "h1 { color: #767676; background: white }",  # 4.54:1
        "h1 { color: #949494; background: #fff; font-size: 2rem }",  # large: 3.03:1
        "h1 { color: #949494; background: #fff; font-size: 19px; font-weight: bold }",
        "h1 { color: #999 } h1 { background: #fff }",  # only a browser could tell
        "h1 { color: var(--ink); background: #fff }",
        "h1 { color: #999; background: linear-gradient(#000, #fff) }",
        "h1 { border-color: #999; background: #fff }",
    ],
)
def test_what_is_readable_or_cannot_be_told_is_let_through(rule: str) -> None:
    assert check(PAGE % rule) == []


def test_rules_inside_a_media_query_are_read_too() -> None:
    dark = "@media (prefers-color-scheme: dark) { a { color: #333; background: #000 !important } }"
    assert [text for _, text in unreadable(dark)]


@given(colours, colours)
def test_a_ratio_lies_between_1_and_21_and_has_no_sides(first: Colour, second: Colour) -> None:
    assert 1 <= ratio(first, second) == ratio(second, first) <= 21.001
    assert read_colour(str(first)) == first


@given(colours, colours, st.sampled_from([3.0, 4.5]))
def test_there_is_always_a_readable_colour(ink: Colour, ground: Colour, enough: float) -> None:
    found = nearest(ink, ground, enough)
    assert ratio(found, ground) >= enough
    assert (found == ink) == (ratio(ink, ground) >= enough)
