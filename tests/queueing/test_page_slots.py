"""Holes and sections of a page."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queueing.pages.slots import SlotError, fill, split


@settings(deadline=None)
@given(
    st.recursive(
        st.one_of(st.text("abc{}<>", max_size=5), st.sampled_from(["⟪a⟫", "⟪b⟫"])),
        lambda inner: st.builds(
            lambda sign, name, parts: f"⟪{sign}{name}⟫{''.join(parts)}⟪/{name}⟫",
            st.sampled_from("?!"),
            st.sampled_from("ab"),
            st.lists(inner, max_size=3),
        ),
        max_leaves=12,
    ),
    st.text("xyz", max_size=2),
)
def test_sections_keep_or_drop_their_whole_content(source: str, value: str) -> None:
    filled = fill(split(source), {"a": value, "b": "B"})
    assert "⟪" not in filled
    assert fill(split(f"⟪?a⟫{source}⟪/a⟫"), {"a": value, "b": "B"}) == (filled if value else "")
    assert fill(split(f"⟪!a⟫{source}⟪/a⟫"), {"a": value, "b": "B"}) == ("" if value else filled)


@pytest.mark.parametrize("source", ["⟪?a⟫", "⟪/a⟫", "⟪?a⟫⟪/b⟫", "⟪?a⟫⟪?b⟫⟪/a⟫⟪/b⟫"])
def test_sections_that_do_not_nest_are_refused(source: str) -> None:
    with pytest.raises(SlotError):
        split(source)
