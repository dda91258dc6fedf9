"""docs/parity.md is true: the tests that it names exist, and no promise or case is left out."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")
ROW = re.compile(
    r"^\| ((?:Co|Ct|Dc)-\d{3}) \| (.+?) \| (done|partly|later)(: [^|]+)? \| (.*?) ?\|$"
)
CHECK = re.compile(r"^\| (.+?) \| (done|partly: .+?|no: .+?|untested: .+?) \| (.*?) ?\|$")
GROUPS = {
    "Pass": 2,
    "Proxy": 1,
    "Queue": 4,
    "Assets and streams": 3,
    "Priority": 2,
    "Operations": 1,
    "The room's own library": 19,
}
"""How many lines of the other system's tests each group has."""
SUBJECTS = {
    "abuse",
    "portal",
    "gateway management",
    "exploit rules",
    "production",
}
NUMBERS = [1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 14, 15, 16, 17, 19, 20, 21, 24, 25, 26, 27, 28, 29, 31]
NUMBERS += [32, 35, 36, 38, 39, 41, 43, 45, 47, 48, 50, 51, 52, 53, 55, 56, 60, 61, 64, 71, 74]
CASES = [*(f"{number:02d}" for number in NUMBERS), *(f"75{letter}" for letter in "abcdefghijklmn")]
"""The cases of the waiting room and its page that hold so far."""


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def existing() -> set[tuple[str, str]]:
    return {
        (str(path.relative_to(TESTS)), name)
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE)
    }


def cases_of(name: str) -> set[str]:
    """Read the numbers out of a name: `test_wr_06_wr_20_…`, `test_wr_32_and_56_…`."""
    found = re.findall(r"wr_(\d\d[a-n]?)(?=_)(?:_and_(\d\d[a-n]?)(?=_))?", name)
    return {number for pair in found for number in pair if number}


def test_every_test_that_the_page_names_exists(page: str, existing: set[tuple[str, str]]) -> None:
    named = set(NAMED.findall(page))
    assert len(named) > 150
    assert sorted(named - existing) == []


def test_every_promise_has_one_line_with_its_state(page: str) -> None:
    rows = [match for line in page.splitlines() if (match := ROW.match(line))]
    expected = [
        f"{text}-{number:03d}"
        for text, last in (("Co", 94), ("Ct", 231), ("Dc", 11))
        for number in range(1, last + 1)
    ]
    assert [row[1] for row in rows] == expected
    for row in rows:
        state, rest, tests = row[3], (row[4] or "").removeprefix(": "), row[5]
        if state == "done":
            assert NAMED.search(tests), f"{row[1]} names no test"
        if state == "later":
            assert rest in SUBJECTS, f"{row[1]} comes with {rest!r}"
            assert not tests
        assert tests or rest, f"{row[1]} says neither what shows it nor what is missing"


def test_the_numbers_at_the_head_of_the_page_are_right(page: str) -> None:
    rows = [match for line in page.splitlines() if (match := ROW.match(line))]
    counted = Counter((row[1][:2], row[3]) for row in rows)
    for text in ("Co", "Ct", "Dc"):
        numbers = " | ".join(str(counted[text, s]) for s in ("done", "partly", "later"))
        assert f"({text}) | {numbers} |" in page


@pytest.mark.parametrize("group", GROUPS)
def test_what_the_other_system_checks_has_a_test_or_a_reason(
    group: str, page: str, existing: set[tuple[str, str]]
) -> None:
    section = page.split("## What the other system's tests check")[1]
    part = section.split(f"### {group}\n")[1].split("\n### ")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")][1:]
    rows = [match for line in lines if (match := CHECK.match(line))]
    assert len(rows) == len(lines) == GROUPS[group]
    for words, state, tests in (row.groups() for row in rows):
        named = set(NAMED.findall(tests))
        assert named <= existing
        assert bool(named) is state.startswith(("done", "partly")), words


@pytest.mark.parametrize("case", CASES)
def test_every_case_has_a_test_that_carries_its_number(
    case: str, page: str, existing: set[tuple[str, str]]
) -> None:
    assert [name for _, name in existing if case in cases_of(name)]
    row = re.search(rf"^\| WR-{case} \| .+ \| (.*) \|$", page, re.MULTILINE)
    assert row
    assert {case in cases_of(name) for _, name in NAMED.findall(row[1])} == {True}


def test_the_licence_and_the_layout_are_as_promised() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    top = "manage.py pyproject.toml corvus_site queueing abuse portal proxy templates tests"
    for name in [*top.split(), "docker-compose.yml"]:
        assert (ROOT / name).exists(), name
