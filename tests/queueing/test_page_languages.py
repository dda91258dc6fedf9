"""Which language a visitor gets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.pages import choose_language

AVAILABLE = ("en", "de", "fr", "es", "ja", "ar")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", "en"),
        ("de", "de"),
        ("DE-at, en;q=0.5", "de"),
        ("pt-AO, pt;q=0.9", "en"),
        ("pt-AO, ja;q=0.2", "ja"),
        ("en;q=0.3, fr;q=0.9, *;q=0.1", "fr"),
        ("de;q=0, fr;q=0.1", "fr"),
        ("fr, de", "fr"),
        ("zh-Hant-TW, ar-EG;q=0.7", "ar"),
        ("*", "en"),
        ("de;q=2, fr;q=1", "fr"),
        ("de;q=nan, es", "es"),
        ("de ; q=0.4 , es;q = 0.5", "es"),
        (";;;,,,q=1,\x00", "en"),
    ],
)
def test_the_highest_quality_that_we_have_wins_and_regions_fall_back(
    header: str, expected: str
) -> None:
    assert choose_language(header, "", AVAILABLE, "en") == expected


def test_a_remembered_choice_comes_before_the_browsers_wish() -> None:
    assert choose_language("de", "ja", AVAILABLE, "en") == "ja"
    assert choose_language("de", "tlh", AVAILABLE, "en") == "de"
    assert choose_language("de", "fr-CH", AVAILABLE, "en") == "fr"


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=20))
def test_whatever_is_sent_the_answer_is_a_language_we_have(header: str, cookie: str) -> None:
    assert choose_language(header, cookie, AVAILABLE, "en") in AVAILABLE


@settings(deadline=None)
@given(
    st.permutations(AVAILABLE).flatmap(
        lambda order: st.tuples(
            st.just(order),
            st.lists(st.integers(min_value=1, max_value=1000), min_size=6, max_size=6, unique=True),
        )
    )
)
def test_the_order_in_the_header_does_not_matter_when_qualities_differ(
    case: tuple[list[str], list[int]],
) -> None:
    order, qualities = case
    pairs = list(zip(order, qualities, strict=True))
    header = ", ".join(f"{code};q={q / 1000:.3f}" for code, q in pairs)
    assert choose_language(header, "", AVAILABLE, "en") == max(pairs, key=lambda p: p[1])[0]
