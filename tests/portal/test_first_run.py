"""First run, as somebody sees it who opens the console for the first time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from portal import services
from portal.setup_token import TOKEN_FILE, Attempts, SetupToken

pytestmark = pytest.mark.django_db

PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def _fresh(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.DATA_DIR = tmp_path
    settings.SETUP_TOKEN = ""
    monkeypatch.setattr(services, "attempts", Attempts())


def answers(token: str, **changed: str) -> dict[str, str]:
    return {
        "token": token,
        "username": "ada",
        "password": PASSWORD,
        "repeated": PASSWORD,
        **changed,
    }


@pytest.mark.parametrize("path", ["/", "/admin/", "/admin/queueing/room/", "/nowhere"])
def test_every_address_leads_to_the_first_run_page_while_there_is_no_administrator(
    client: Client, path: str
) -> None:
    response = client.get(path)
    assert (response.status_code, response["Location"]) == (302, "/first-run/")


def test_the_health_address_and_the_stylesheet_answer_before_the_first_run(client: Client) -> None:
    assert client.get("/healthz").content == b"ok\n"
    style = client.get("/static/corvus/portal.css")
    assert style.status_code == 200
    assert style["Content-Type"].startswith("text/css")


def test_the_printed_token_creates_the_administrator_and_signs_in(client: Client) -> None:
    token = services.ensure_setup_token()
    assert token
    response = client.post("/first-run/", answers(token), follow=True)
    assert response.redirect_chain[-1] == ("/admin/", 302)
    assert response.context["user"].username == "ada"
    assert User.objects.get().is_superuser


def test_a_token_works_once(client: Client, tmp_path: Path) -> None:
    token = services.ensure_setup_token()
    assert token
    client.post("/first-run/", answers(token))
    assert not (tmp_path / TOKEN_FILE).exists()
    User.objects.all().delete()
    again = Client().post("/first-run/", answers(token, username="eve"))
    assert again.status_code == 403
    assert not User.objects.exists()


def test_the_first_run_page_is_closed_once_there_is_an_administrator(client: Client) -> None:
    token = services.ensure_setup_token() or ""
    User.objects.create_superuser("ada", password=PASSWORD)
    response = client.post("/first-run/", answers(token, username="eve"))
    assert (response.status_code, response["Location"]) == (302, "/admin/")
    assert [u.username for u in User.objects.all()] == ["ada"]


def test_the_data_folder_keeps_only_a_hash_that_others_cannot_read(tmp_path: Path) -> None:
    token = services.ensure_setup_token()
    file = tmp_path / TOKEN_FILE
    assert token
    assert token not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_restart_prints_a_new_token_and_the_old_one_is_void(client: Client) -> None:
    old, new = services.ensure_setup_token(), services.ensure_setup_token()
    assert old
    assert new
    assert client.post("/first-run/", answers(old)).status_code == 403
    assert client.post("/first-run/", answers(new)).status_code == 302


def test_no_token_is_made_once_there_is_an_administrator(tmp_path: Path) -> None:
    services.ensure_setup_token()
    User.objects.create_superuser("ada", password=PASSWORD)
    assert services.ensure_setup_token() is None
    assert not (tmp_path / TOKEN_FILE).exists()


def test_an_operators_own_token_works_and_is_not_given_out(client: Client, settings: Any) -> None:
    settings.SETUP_TOKEN = "twelve-chars-or-more"
    assert services.ensure_setup_token() is None
    assert client.post("/first-run/", answers("twelve-chars-or-more")).status_code == 302


def test_a_wrong_token_creates_nobody(client: Client) -> None:
    services.ensure_setup_token()
    response = client.post("/first-run/", answers("not-the-token-at-all"))
    assert response.status_code == 403
    assert "This is not the setup token" in response.content.decode()
    assert not User.objects.exists()


def test_guessing_is_slowed_down_even_for_the_right_token(client: Client) -> None:
    token = services.ensure_setup_token()
    assert token
    for number in range(5):
        assert client.post("/first-run/", answers(f"guess-number-{number}")).status_code == 403
    response = client.post("/first-run/", answers(token))
    assert response.status_code == 429
    assert 1 <= int(response["Retry-After"]) <= 61
    assert not User.objects.exists()


def test_attempts_are_free_again_after_a_minute() -> None:
    now = [100.0]
    attempts = Attempts(most=2, within_s=60, clock=lambda: now[0])
    attempts.failed()
    attempts.failed()
    assert attempts.wait_s() > 0
    now[0] += 60.5
    assert attempts.wait_s() == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"password": "short", "repeated": "short"}, "too short"),
        ({"password": "password1234", "repeated": "password1234"}, "too common"),
        ({"repeated": "something-else-12"}, "not the same"),
        ({"username": "a b"}, "valid username"),
        ({"username": ""}, "required"),
    ],
)
def test_a_weak_password_or_a_bad_name_is_refused_and_the_token_stays_good(
    client: Client, changed: dict[str, str], said: str
) -> None:
    token = services.ensure_setup_token()
    assert token
    response = client.post("/first-run/", answers(token, **changed))
    assert response.status_code == 400
    assert said in response.content.decode()
    assert not User.objects.exists()
    assert client.post("/first-run/", answers(token)).status_code == 302


def test_of_two_who_use_the_token_at_once_one_is_refused(tmp_path: Path) -> None:
    token = SetupToken(tmp_path)
    token.issue()
    assert [token.use_up(), token.use_up()] == [True, False]


def test_a_missing_token_file_opens_nothing(tmp_path: Path) -> None:
    assert not SetupToken(tmp_path).matches("")
    assert not SetupToken(tmp_path).matches("0" * 64)


def test_the_form_is_protected_against_forged_requests() -> None:
    token = services.ensure_setup_token() or ""
    response = Client(enforce_csrf_checks=True).post("/first-run/", answers(token))
    assert response.status_code == 403
    assert not User.objects.exists()
