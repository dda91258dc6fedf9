"""Guessing an operator's password, as an attacker meets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from portal.sign_in import MOST_OF_ACCOUNT, MOST_OF_NETWORK, MOST_OF_PAIR

pytestmark = pytest.mark.django_db

PASSWORD = "correct-horse-battery"
HOME, AWAY = "192.0.2.1", "198.51.100.7"


@pytest.fixture(autouse=True)
def _counted_here(settings: Any) -> Iterator[None]:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    cache.clear()
    User.objects.create_superuser("ada", password=PASSWORD)
    yield
    cache.clear()


def sign_in(username: str, password: str, address: str, **headers: str) -> str:
    """Give `in`, `wrong` or `throttled`."""
    form = {"username": username, "password": password, "next": "/admin/"}
    answer = Client().post("/admin/login/", form, REMOTE_ADDR=address, headers=headers)
    if answer.status_code == 302:
        return "in"
    return "throttled" if b"Too many tries" in answer.content else "wrong"


def test_brute_force_of_one_account_ends_after_a_few_tries() -> None:
    said = [sign_in("ada", f"guess {n}", AWAY) for n in range(MOST_OF_PAIR + 2)]
    assert said == ["wrong"] * MOST_OF_PAIR + ["throttled"] * 2
    assert sign_in("ada", PASSWORD, AWAY) == "throttled", "the right one tells nothing either"


def test_brute_force_does_not_lock_the_administrator_out_elsewhere() -> None:
    assert sign_in("ada", PASSWORD, HOME) == "in"
    for n in range(MOST_OF_ACCOUNT + 2):
        sign_in("ada", f"guess {n}", f"203.0.113.{n}")
    assert sign_in("ada", PASSWORD, "203.0.113.250") == "throttled", "many networks, one account"
    assert sign_in("ada", PASSWORD, HOME) == "in"


def test_brute_force_of_many_accounts_from_one_network_ends() -> None:
    said = [sign_in(f"user{n}", "password1234", AWAY) for n in range(MOST_OF_NETWORK + 1)]
    assert said[-1] == "throttled"
    assert sign_in("ada", PASSWORD, HOME) == "in"


def test_brute_force_with_invented_forwarded_addresses_is_one_network() -> None:
    said = [
        sign_in("ada", "guess", AWAY, x_forwarded_for=f"192.0.2.{n}")
        for n in range(MOST_OF_PAIR + 1)
    ]
    assert said[-1] == "throttled"


def test_a_right_password_starts_the_count_anew() -> None:
    for _ in range(3):
        for _ in range(MOST_OF_PAIR - 1):
            assert sign_in("ada", "mistyped", HOME) == "wrong"
        assert sign_in("ada", PASSWORD, HOME) == "in"


def test_odd_names_and_addresses_are_no_errors() -> None:
    assert sign_in("a" * 5000, "x", "") == "wrong"
    assert sign_in("ünï\ud7ff", "x", "::1") == "wrong"
    assert sign_in("", "", HOME) == "wrong"
