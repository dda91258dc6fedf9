"""Names, origins and path rules have one form, and what has none is refused in one sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.names import (
    clean_allowed_origin,
    clean_allowed_origins,
    clean_name,
    clean_names,
    clean_origin,
    clean_path_list,
    clean_path_rule,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("www.Example.ORG.", "www.example.org"),
        (" shop ", "shop"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("*", "*"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_wr_43_a_host_name_has_one_form(text: str, name: str) -> None:
    assert clean_name(text) == name


@pytest.mark.parametrize(
    "text", ["", "http://a", "a:80", "a/b", "-a.example", "a..b", "a b", "x" * 64, "*.*", "ä" * 70]
)
def test_what_is_no_host_name_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        clean_name(text)


def test_a_list_of_names_needs_one_and_has_each_once() -> None:
    assert clean_names("a.example\nb.example, c.example") == ("a.example", "b.example", "c.example")
    with pytest.raises(ValueError, match="at least one"):
        clean_names(" \n")
    with pytest.raises(ValueError, match="once"):
        clean_names("a.example A.example.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://a",
        "http://",
        "http://a/b",
        "http://u:p@a",
        "http://a?x",
        "http://a:0",
        "http://a:x",
    ],
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        clean_origin(text)


def test_an_origin_has_one_form() -> None:
    assert clean_origin(" http://LocalHost:3000/ ") == "http://localhost:3000"
    assert clean_origin("https://[::1]:8443") == "https://[::1]:8443"


@pytest.mark.parametrize("text", ["", "x", "/a*", "/*/b", "/a?b", "/a b", "/a#b", "/ä"])
def test_what_is_no_path_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed"):
        clean_path_rule(text)


def test_path_rules_are_one_a_line_and_one_written_twice_is_kept_to_be_refused() -> None:
    assert clean_path_list("/a, /b/*\n/a ") == "/a\n/b/*\n/a"


@given(st.text(max_size=80))
def test_cleaning_a_name_twice_changes_nothing(text: str) -> None:
    try:
        once = clean_name(text)
    except ValueError:
        return
    assert clean_name(once) == once


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://App.Example.org", "https://app.example.org"),
        ("https://app.example.org:443/", "https://app.example.org"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://a:80", "http://a"),
        ("http://a:443", "http://a:443"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        ("capacitor://localhost", "capacitor://localhost"),
    ],
)
def test_wr_50_an_allowed_origin_has_the_form_that_browsers_send(text: str, origin: str) -> None:
    assert clean_allowed_origin(text) == origin
    assert clean_allowed_origin(origin) == origin


@pytest.mark.parametrize(
    "text",
    [
        "*",
        "https://*",
        "https://*.example.org",
        "null",
        "app.example.org",
        "https://",
        "https://a/b",
        "https://u@a",
        "https://a:0",
        "https://a:99999",
        "https://a?x",
        "//a",
    ],
)
def test_wr_50_what_is_no_origin_of_one_site_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(ValueError, match="is not allowed") as refusal:
        clean_allowed_origin(text)
    assert text in str(refusal.value)


def test_allowed_origins_are_one_a_line_and_each_once() -> None:
    assert clean_allowed_origins("https://a, https://A/\nhttp://b") == "https://a\nhttp://b"
