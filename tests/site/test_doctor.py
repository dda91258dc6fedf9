"""`manage.py doctor` and `manage.py prepare` on a folder of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.running import Running

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Run]:
    """Run a command of `manage.py`; give status, output and errors."""
    started: list[Running] = []

    def run(*arguments: str, **environ: str) -> tuple[int, str, str]:
        given = {"CORVUS_DATA_DIR": str(tmp_path / "data"), **environ}
        started.append(Running(["manage.py", *arguments], given))
        status, errors = started[-1].wait(60)
        return status, "\n".join(started[-1].lines), errors

    yield run
    for running in started:
        running.end()


def test_doctor_says_what_a_new_folder_lacks_and_changes_nothing(
    command: Run, tmp_path: Path
) -> None:
    status, said, _ = command("doctor")
    assert status == 0
    assert "warning  the embedded store does not run" in said
    assert "migrations wait" in said
    assert not (tmp_path / "data" / "setup-token").exists()


def test_doctor_finds_a_site_that_does_not_answer(command: Run) -> None:
    status, said, errors = command("doctor", CORVUS_UPSTREAM="http://127.0.0.1:1")
    assert status == 1
    assert "error    CORVUS_UPSTREAM: http://127.0.0.1:1 does not answer" in said
    assert "errors: 1, see above." in errors


def test_doctor_finds_a_folder_that_others_can_look_into(command: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    assert "other users of this machine can look into" in command("doctor")[1]


def test_prepare_is_safe_to_repeat_and_works_while_the_store_is_down(command: Run) -> None:
    for _ in range(2):
        status, said, errors = command("prepare")
        assert status == 0, errors
        assert [line for line in said.splitlines() if line.startswith("setup_token=")]
    assert "database sqlite is up to date" in command("doctor")[1]


def test_an_operator_s_own_setup_token_is_not_printed(command: Run) -> None:
    status, said, _ = command("prepare", CORVUS_SETUP_TOKEN="the-operator-knows-it")
    assert status == 0
    assert "setup_token=" not in said
    assert "the-operator-knows-it" not in said
