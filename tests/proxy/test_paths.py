"""Readings of paths, rules over them, request targets and host names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gateway.paths import (
    MAX_READINGS,
    AmbiguousPath,
    BadHost,
    BadPath,
    PathRule,
    PathSet,
    Territory,
    is_reserved,
    matches,
    normal_host,
    readings,
)

TICKETS = PathRule.compile("/tickets/*")


@pytest.mark.parametrize("path", [b"/", b"/a", b"/a/b.css", b"/a/b/", b"/~x/a,b:c@d=(e)!*'$&+-_"])
def test_an_ordinary_path_has_one_reading(path: bytes) -> None:
    assert readings(path) == (path.decode(),)


@pytest.mark.parametrize(
    "path",
    [
        b"/tickets",
        b"/tickets/",
        b"//tickets/",
        b"///tickets",
        b"/./tickets/",
        b"/x/../tickets/",
        b"/x/%2e%2e/tickets/",
        b"/x/%2e./tickets",
        b"/../../tickets",
        b"/%74ickets/",
        b"/tickets%2Fa",
        b"/tickets%5ca",
        b"/tickets\\a",
        b"/x%2f..%2ftickets",
        b"/x/..%2ftickets",
        b"/x\\..\\tickets",
        b"/tickets;v=1/a",
        b"/tickets;v=1",
        b"/;x/tickets",
        b"/x/..;/tickets/a",
        b"/x/..;v=1/%74ickets%3Bv=1%2Fa",
        b"/x;a%2fb/..%2ftickets",
        b"/tickets;v\\x%2fa",
        b"/x\\..%2ftickets\\a",
        b"/a%2fb/../x/..%2ftickets",
        b"/t%69ckets/%2e%2e/..",
        b"/x//../tickets/a",
        b"/tickets/a/../../x",
        b"/tickets/.",
        b"/tickets/%2e%2e%2fx",
    ],
)
def test_wr_43_every_trick_falls_under_the_room_in_some_reading(path: bytes) -> None:
    assert matches(TICKETS, readings(path))
    assert Territory([("/tickets/*", "room")]).governing(readings(path)) == "room"


@pytest.mark.parametrize(
    "path", [b"/ticketsx", b"/x", b"/ticket", b"/x/tickets", b"/TICKETS/", b"/%54ICKETS", b"/a%20b"]
)
def test_wr_43_other_paths_do_not(path: bytes) -> None:
    assert not matches(TICKETS, readings(path))


def test_wr_43_upper_case_falls_under_the_room_where_the_origin_ignores_case() -> None:
    rule = PathRule.compile("/Tickets/*", insensitive=True)
    for path in (b"/TICKETS/", b"/t%49ckets", b"/x/../TICKETS", b"/tickets/a"):
        assert matches(rule, readings(path, insensitive=True))


@pytest.mark.parametrize(
    "path",
    [
        b"/a%00",
        b"/%00",
        b"/a\0",
        b"/%ff",
        b"/%c0%af",
        b"/%e2%82",
        b"/\xff",
        b"/\xc3%2f",
        b"",
        b"*",
        b"tickets",
        b"http://x/a",
        b"/" + b"a;b/../%2f;/" * 2_000,
    ],
)
def test_a_path_that_nobody_can_judge_is_refused(path: bytes) -> None:
    with pytest.raises(BadPath):
        readings(path)


def test_percent_is_decoded_once() -> None:
    assert "/tickets" not in readings(b"/%2574ickets")
    assert readings(b"/%zz%4") == ("/%zz%4",)


def test_a_rule_in_another_script_reaches_its_encoded_path() -> None:
    for pattern in ("/bücher/*", "/b%C3%BCcher/*"):
        assert matches(PathRule.compile(pattern), readings(b"/b%c3%bccher/neu"))


@pytest.mark.parametrize("pattern", ["tickets", "", "*", "/a*", "/*/b", "/a/*/*", "/%ff/*"])
def test_a_rule_that_is_none_is_named(pattern: str) -> None:
    with pytest.raises(ValueError, match="not allowed"):
        PathRule.compile(pattern)


@pytest.mark.parametrize(
    ("pattern", "reading", "expected"),
    [
        ("/*", "/", True),
        ("/*", "/a/b", True),
        ("/x/*", "/x", True),
        ("/x/*", "/x/", True),
        ("/x/*", "/x/y/z", True),
        ("/x/*", "/xy", False),
        ("/x", "/x", True),
        ("/x", "/x/", False),
        ("/", "/", True),
        ("/", "/a", False),
    ],
)
def test_what_a_rule_matches(pattern: str, reading: str, expected: bool) -> None:
    assert PathRule.compile(pattern).match(reading) is expected


def test_the_most_specific_rule_governs() -> None:
    rooms = Territory([("/*", "main"), ("/a/*", "a"), ("/a/b/*", "ab"), ("/a/b/c", "exact")])
    for path, room in [
        (b"/", "main"),
        (b"/a", "a"),
        (b"/a/x", "a"),
        (b"/a/b/x", "ab"),
        (b"/a/b/c", "exact"),
        (b"/a/b/c/d", "ab"),
    ]:
        assert rooms.governing(readings(path)) == room
    assert Territory([("/a/*", "a")]).governing(readings(b"/b")) is None


def test_two_rooms_for_one_path_are_ambiguous_and_one_room_twice_is_not() -> None:
    with pytest.raises(AmbiguousPath):
        Territory([("/a/*", "a"), ("/b/*", "b")]).governing(readings(b"/a/..%2fb"))
    with pytest.raises(AmbiguousPath):
        Territory([("/*", "main"), ("/b/*", "b")]).governing(readings(b"/%62"))
    same = Territory([("/a/*", "one"), ("/b/*", "one")])
    assert same.governing(readings(b"/a/..%2fb")) == "one"


@given(st.text("/ab%2", min_size=1, max_size=12).map(lambda rest: "/" + rest))
def test_a_set_of_rules_is_what_its_rules_are_one_by_one(path: str) -> None:
    patterns = ["/a", "/a/*", "/b/a/*", "/ab"]
    rules = [PathRule.compile(pattern) for pattern in patterns]
    found = readings(path.encode()) if "%" not in path else (path,)
    expected = all(any(rule.match(reading) for rule in rules) for reading in found)
    assert PathSet(patterns).hold(found) == expected


def test_a_bypass_must_hold_in_every_reading() -> None:
    bypass = PathSet(["/assets/*", "/robots.txt"])
    assert bypass.hold(readings(b"/assets/a%20b.css"))
    assert bypass.hold(readings(b"/robots.txt"))
    assert not bypass.hold(readings(b"/assets/../tickets"))
    assert not bypass.hold(readings(b"/assets/..%2ftickets"))
    assert not bypass.hold(readings(b"/tickets/..;/assets/"))


@pytest.mark.parametrize(
    "path",
    [
        b"/__corvus",
        b"/__corvus/healthz",
        b"/%5f%5fcorvus/x",
        b"//__corvus/x",
        b"/a/..%2f__corvus/",
        b"/__corvus;a/b",
        b"/__corvus%2fstats",
        b"/x\\..\\__corvus\\",
    ],
)
def test_reserved_paths_are_reserved_in_any_reading(path: bytes) -> None:
    assert is_reserved(readings(path))


@pytest.mark.parametrize("path", [b"/", b"/__corvusx", b"/a/__corvus/", b"/_corvus/"])
def test_other_paths_are_not_reserved(path: bytes) -> None:
    assert not is_reserved(readings(path))


def _disguise(segment: str) -> st.SearchStrategy[str]:
    letters = [
        st.sampled_from([c, f"%{ord(c):02x}", f"%{ord(c):02X}"]) if c.isalpha() else st.just(c)
        for c in segment
    ]
    parameters = st.sampled_from(["", "", ";", ";v=1", ";a=b%2fc", "%3bx"])
    return st.tuples(st.tuples(*letters).map("".join), parameters).map("".join)


_detour = st.one_of(
    st.sampled_from(["", ".", "%2e", ".;x", "%2E;"]),
    st.tuples(
        st.sampled_from(["x", "%78", "y;z", "a%20b"]),
        st.sampled_from(["/", "%2f", "%5C", "\\"]),
        st.sampled_from(["..", "%2e.", ".%2E", "..;v", "%2e%2e"]),
    ).map("".join),
)
_slash = st.sampled_from(["/", "/", "//", "%2f", "\\", "%5c", "/./"])


@given(
    st.lists(st.tuples(_detour, _slash).map("".join), max_size=3).map("".join),
    _disguise("tickets"),
    st.one_of(st.just(""), st.tuples(_slash, st.sampled_from(["", "a", "a/b"])).map("".join)),
)
def test_wr_43_disguises_of_a_gated_path_are_gated_or_refused(
    detours: str, name: str, rest: str
) -> None:
    try:
        found = readings(f"/{detours}{name}{rest}".encode())
    except BadPath:
        return
    assert matches(TICKETS, found), found


@given(st.binary(max_size=60))
def test_any_bytes_give_bounded_distinct_readings_or_are_refused(rest: bytes) -> None:
    try:
        found = readings(b"/" + rest)
    except BadPath:
        return
    assert 1 <= len(found) == len(set(found)) <= MAX_READINGS + 8
    assert found[0] == (b"/" + rest).decode()
    assert all(reading.startswith("/") for reading in found)
    assert not any("\0" in reading for reading in found)


# Hosts.


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("shop.example", "shop.example"),
        ("SHOP.Example", "shop.example"),
        ("shop.example.", "shop.example"),
        ("shop.example:8080", "shop.example"),
        ("shop.example.:", "shop.example"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example:443", "xn--bcher-kva.example"),
        ("xn--bcher-kva.EXAMPLE", "xn--bcher-kva.example"),
        ("straße.example", "xn--strae-oqa.example"),
        ("bücher。example", "xn--bcher-kva.example"),
        ("my_host", "my_host"),
        ("127.0.0.1:80", "127.0.0.1"),
        ("[::1]:8080", "[::1]"),
        ("[2001:DB8::1]", "[2001:db8::1]"),
    ],
)
def test_wr_43_gw_21_a_host_name_has_one_form(raw: str, expected: str) -> None:
    assert normal_host(raw.encode()) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b".",
        b"a..b",
        b"a b",
        b"a/b",
        b"a@b",
        b"a:b",
        b"a:80:90",
        b"a:999999",
        b"-a.example",
        b"\xff",
        b"[::1",
        b"[::1]x",
        b"[x]",
        b"a" * 64,
        b"a." * 140,
        b"a\0b",
        b"%61.example",
    ],
)
def test_a_host_that_is_no_name_is_refused(raw: bytes) -> None:
    with pytest.raises(BadHost):
        normal_host(raw)


@given(st.binary(max_size=30))
def test_a_normal_host_is_its_own_normal_form(raw: bytes) -> None:
    try:
        name = normal_host(raw)
    except BadHost:
        return
    assert normal_host(name.encode()) == name
