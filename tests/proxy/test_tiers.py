"""Tiers of paths, and what may stand in a host's lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import product
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.gateway.conflicts import LABELS, faults
from proxy.gateway.paths import BadPath, PathRule, PathTree, readings
from proxy.gateway.tiers import LISTS, Tier, Tiers

SHOP = Tiers(
    {
        "bypass": ["/hooks/*", "/robots.txt"],
        "assets": ["/assets/*", "/b%C3%BCcher%20neu/*"],
        "public_assets": ["/uploads/*"],
        "streams": ["/live"],
        "ban_paths": ["/.env", "/.git/*"],
    }
)


def tier(path: bytes, tiers: Tiers = SHOP, *, insensitive: bool = False) -> Tier:
    return tiers.strictest(readings(path, insensitive=insensitive))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/", Tier.PAGE),
        (b"/assets", Tier.ASSET),
        (b"/assets/", Tier.ASSET),
        (b"/assets/a/b.css", Tier.ASSET),
        (b"/assets/a%20b;v=1.css", Tier.ASSET),
        (b"/assetsx", Tier.PAGE),
        (b"/b%C3%BCcher%20neu/1", Tier.ASSET),
        (b"/uploads/cat.jpg", Tier.PUBLIC_ASSET),
        (b"/robots.txt", Tier.BYPASS),
        (b"/robots.txt/", Tier.PAGE),
        (b"/hooks", Tier.BYPASS),
        (b"/live", Tier.STREAM),
        (b"/live/", Tier.PAGE),
        (b"/.env", Tier.BAN),
        (b"/.git", Tier.BAN),
        (b"/.git/config", Tier.BAN),
        (b"/.gitignore", Tier.PAGE),
    ],
)
def test_a_path_has_the_tier_of_its_list(path: bytes, expected: Tier) -> None:
    assert tier(path) is expected


@pytest.mark.parametrize(
    "path",
    [
        b"/%s/../admin",
        b"/%s/..%%2fadmin",
        b"/%s/%%2e%%2e/admin",
        b"/%s/..;/admin",
        b"/%s/..;v=1/admin",
        b"/%s%%2f..%%2fadmin",
        b"/%s\\..\\admin",
        b"/%s/x/../../admin",
        b"/admin/..;/%s/",
        b"//%s/a",
        b"/./%s/a",
        b"/;x/%s/a",
        b"/x/../%s/a",
        b"/%s;v=1/a",
    ],
)
@pytest.mark.parametrize("name", [b"assets", b"uploads", b"hooks", b"%61ssets", b"%75ploads"])
def test_wr_43_no_trick_makes_a_page_of_anything_but_a_page(path: bytes, name: bytes) -> None:
    """However an origin reads these, one of its readings is outside of the list."""
    assert tier(path % name) is Tier.PAGE


@pytest.mark.parametrize(
    "path",
    [
        b"/.env",
        b"//.env",
        b"/./.env",
        b"/x/../.env",
        b"/%2eenv",
        b"/%2Eenv",
        b"/.env;x",
        b"/.git%2fconfig",
        b"/.git\\config",
        b"/assets/../.env",
        b"/assets/..%2f.env",
        b"/.git/..%2fassets/a.css",
        b"/robots.txt/..;/.git/HEAD",
        b"/.git/../assets/a.css",
    ],
)
def test_wr_43_a_ban_path_wins_in_any_reading(path: bytes) -> None:
    assert tier(path) is Tier.BAN


@pytest.mark.parametrize("path", [b"/ASSETS/a", b"/%41ssets/a", b"/AsSeTs", b"/.ENV", b"/.Git/x"])
def test_wr_43_case_counts_as_the_host_says(path: bytes) -> None:
    folded = Tiers({"assets": ["/Assets/*"], "ban_paths": ["/.Env", "/.git/*"]}, insensitive=True)
    assert tier(path) is Tier.PAGE
    assert tier(path, folded, insensitive=True) in (Tier.ASSET, Tier.PAGE, Tier.BAN)
    expected = Tier.BAN if path.startswith(b"/.") else Tier.ASSET
    if b"%" not in path:
        assert tier(path, folded, insensitive=True) is expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (b"/uploads/..%2fassets/a", Tier.PAGE),  # as it was sent it is below neither list alone
        (b"/assets/..;/uploads/a", Tier.PAGE),
        (b"/hooks/%2e%2e%2fuploads/a", Tier.PAGE),
    ],
)
def test_wr_43_of_two_tiers_the_stricter_counts(path: bytes, expected: Tier) -> None:
    lists = {"assets": ["/assets/*"], "public_assets": ["/uploads/*"], "bypass": ["/hooks/*"]}
    found = readings(path)
    tiers = Tiers(lists)
    alone = {tiers.strictest((reading,)) for reading in found}
    assert tiers.strictest(found) is max(alone)
    assert max(alone) >= Tier.PUBLIC_ASSET
    assert len(alone) > 1 or alone == {expected}


SEGMENTS = ["a", "b", ".e", "A", "%61", "%2e", "", ".", "..", "..;", "a;v"]
_path = st.lists(
    st.tuples(st.sampled_from(["/", "//", "%2f", "\\", "/./"]), st.sampled_from(SEGMENTS)),
    max_size=5,
).map(lambda parts: "/" + "".join(slash + name for slash, name in parts).lstrip("/"))
_pattern = st.tuples(
    st.lists(st.sampled_from(["a", "b", "A", ".e", "%61"]), min_size=1, max_size=3),
    st.sampled_from(["", "/*"]),
).map(lambda parts: "/" + "/".join(parts[0]) + parts[1])
_lists = st.dictionaries(st.sampled_from(list(LISTS)), st.lists(_pattern, max_size=4), max_size=5)


@given(_lists, _path, st.booleans())
def test_wr_43_no_reading_is_stricter_than_its_path(
    lists: Mapping[str, list[str]], path: str, insensitive: bool
) -> None:
    """What reaches the origin as a page, in whatever form the origin sees it, was judged as one."""
    try:
        found = readings(path.encode(), insensitive=insensitive)
    except BadPath:
        return
    tiers = Tiers(lists, insensitive=insensitive)
    for reading in found:
        rule = tiers.rule(reading)
        assert (rule.tier if rule else Tier.PAGE) <= tiers.strictest(found)


def _resolve(path: str) -> str:
    kept: list[str] = []
    *segments, last = path.split("/")[1:]
    for segment in segments:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    if last == "..":
        kept = kept[:-1]
    return "/" + "/".join([*kept, "" if last in (".", "..") else last])


_ORIGIN = {
    "decode": unquote,
    "decode but slashes": lambda p: re.sub("%(?!2f|5c)..", lambda e: unquote(e[0]), p, flags=re.I),
    "parameters": lambda p: "/".join(part.partition(";")[0] for part in p.split("/")),
    "one slash": lambda p: re.sub("/+", "/", p),
    "backslashes": lambda p: p.replace("\\", "/"),
    "dots": _resolve,
}
"""What servers and frameworks do to a path before they route it, written without our own code."""


@given(_lists, _path, st.lists(st.sampled_from(list(_ORIGIN)), max_size=6), st.booleans())
def test_wr_43_no_origin_takes_a_path_for_something_stricter_than_we_do(
    lists: Mapping[str, list[str]], path: str, steps: list[str], insensitive: bool
) -> None:
    assume(sum(step.startswith("decode") for step in steps) <= 1)
    tiers = Tiers(lists, insensitive=insensitive)
    routed = path
    for step in steps:
        routed = _ORIGIN[step](routed)
    if insensitive:
        routed = routed.lower()
    rule = tiers.rule(routed)
    try:
        judged = tier(path.encode(), tiers, insensitive=insensitive)
    except BadPath:
        return
    assert judged >= (rule.tier if rule else Tier.PAGE)


@given(st.lists(_pattern, max_size=6), st.sampled_from(["a", "b", ".e", "A"]), _path)
def test_a_tree_of_rules_gives_the_most_specific_one(
    patterns: list[str], last: str, path: str
) -> None:
    tree = PathTree((pattern, pattern) for pattern in patterns)
    for reading in (path, f"/a/{last}", "/a", "/"):
        rules = [(PathRule.compile(pattern), pattern) for pattern in patterns]
        found = [(rule, pattern) for rule, pattern in rules if rule.match(reading)]
        best = max(found, key=lambda pair: pair[0].weight)[0] if found else None
        chosen = tree.find(reading)
        if "%" not in reading:  # a path as it was sent falls under the rule of its decoded form too
            assert (PathRule.compile(chosen) if chosen else None) == best


# Conflicts.


def said(lists: Mapping[str, list[str]], *, insensitive: bool = False) -> list[tuple[str, str]]:
    return [(f.field, f.message) for f in faults(lists, insensitive=insensitive)]


def test_an_overlap_names_both_rules_and_both_lists_at_both_fields() -> None:
    message = (
        "“/static/*” (streams) and “/static/app.js” (assets) cover the same path: a path belongs"
        " to one list."
    )
    found = said({"assets": ["/static/app.js"], "streams": ["/static/*"]})
    assert sorted(found) == [("assets", message), ("streams", message)]


def test_one_rule_twice_is_named() -> None:
    assert said({"assets": ["/a", "/b", "/a"]}) == [
        ("assets", "“/a” (assets) and “/a” (assets) are the same rule: write it once.")
    ]
    message = "“/a/*” (assets) and “/%61/*” (ban paths) are the same rule: write it once."
    found = said({"assets": ["/a/*"], "ban_paths": ["/%61/*"]})
    assert sorted(found) == [("assets", message), ("ban_paths", message)]


@pytest.mark.parametrize("name", list(LABELS))
@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("/*", "covers the whole site"),
        ("/__corvus", "Corvus itself"),
        ("/__corvus/*", "Corvus itself"),
        ("/__corvus/wr/main/status", "Corvus itself"),
        ("/%5f_corvus/*", "Corvus itself"),
        ("//a", "leave out"),
        ("/a//*", "leave out"),
        ("/a/../b", "leave out"),
        ("/a/./*", "leave out"),
        ("/a/%2e%2e", "leave out"),
        ("/a;v=1/b", "leave out"),
        ("/a%5cb", "leave out"),
        ("/a%00", "leave out"),
        ("a", "not allowed"),
        ("/a*", "not allowed"),
        ("/%ff", "not allowed"),
    ],
)
def test_what_can_stand_in_no_list_is_refused_with_its_value(
    name: str, pattern: str, why: str
) -> None:
    [(field, message)] = said({name: [pattern]})
    assert field == name
    assert pattern in message
    assert why in message
    assert message.endswith(".")


def test_other_names_than_ours_may_begin_alike() -> None:
    assert said({"assets": ["/__corvusx/*", "/a/__corvus", "/.well-known/x", "/..a"]}) == []


def test_case_counts_as_the_host_says_in_conflicts_too() -> None:
    lists = {"assets": ["/Static/*"], "streams": ["/static/live"]}
    assert said(lists) == []
    assert {field for field, _ in said(lists, insensitive=True)} == {"assets", "streams"}
    assert "Corvus itself" in said({"bypass": ["/__CORVUS/x"]}, insensitive=True)[0][1]


def test_rules_of_one_list_may_lie_within_each_other() -> None:
    assert said({"assets": ["/a", "/a/*", "/a/b", "/a/b/*"]}) == []


def test_return_paths_are_pages_and_so_in_no_other_list() -> None:
    assert said({"return_paths": ["/checkout/3ds"], "assets": ["/static/*"]}) == []
    found = said({"return_paths": ["/static/3ds"], "assets": ["/static/*"]})
    assert {field for field, _ in found} == {"return_paths", "assets"}


def test_the_default_lists_stand_together() -> None:
    assert said({"bypass": ["/favicon.ico", "/robots.txt", "/.well-known/acme-challenge/*"]}) == []


PATHS = ["/" + "/".join(parts) for n in range(1, 5) for parts in product(["a", "b", ""], repeat=n)]
_simple = st.tuples(
    st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=3), st.sampled_from(["", "/", "/*"])
).map(lambda parts: "/" + "/".join(parts[0]) + parts[1])


@given(_simple, _simple, st.booleans())
def test_two_rules_conflict_exactly_when_some_path_falls_under_both(
    one: str, other: str, same_list: bool
) -> None:
    rules = PathRule.compile(one), PathRule.compile(other)
    shared = any(rules[0].match(path) and rules[1].match(path) for path in PATHS)
    if same_list:
        assert bool(said({"assets": [one, other]})) is (one == other)
    else:
        assert bool(said({"assets": [one], "streams": [other]})) is shared


def _encoded(pattern: str) -> str:
    return pattern.replace("a", "%61").replace("B", "%42")


@given(st.lists(_simple, max_size=4), st.lists(_simple, max_size=4))
def test_how_a_rule_is_written_makes_no_difference(one: list[str], other: list[str]) -> None:
    plain = said({"assets": one, "ban_paths": other})
    coded = said({"assets": [_encoded(p) for p in one], "ban_paths": other})
    folded = said({"assets": [p.upper() for p in one], "ban_paths": other}, insensitive=True)
    assert len(plain) == len(coded) == len(folded)


@given(_lists, st.booleans())
def test_lists_without_faults_give_every_path_one_list(
    lists: Mapping[str, list[str]], insensitive: bool
) -> None:
    if faults(lists, insensitive=insensitive):
        return
    for path in PATHS:
        reading = path.casefold() if insensitive else path
        holding = {
            name
            for name, patterns in lists.items()
            if any(PathRule.compile(p, insensitive=insensitive).match(reading) for p in patterns)
        }
        assert len(holding) <= 1
