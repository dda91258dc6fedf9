"""What `manage.py check` says of an operator's configuration, the command line, and log lines."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from django.core.checks import run_checks

from corvus_site import checks, env, logs
from queueing.models import Room

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `manage.py` in an environment of its own."""
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_configuration_of_a_clone_is_right() -> None:
    assert run_checks() == []


def test_a_misspelt_variable_is_a_warning_with_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORVUS_CAPACTIY", "5")
    (warning,) = checks.misspelt_names(None)
    assert (warning.id, warning.hint) == ("corvus.W001", "See docs/settings.md for the names.")
    assert "CORVUS_CAPACTIY" in warning.msg


def test_an_external_store_without_a_secret_is_an_error(settings: Any) -> None:
    settings.CORVUS = env.load({"CORVUS_REDIS_URL": "redis://h"})
    assert [e.id for e in checks.external_store_needs_secret(None)] == ["corvus.E001"]
    settings.CORVUS = env.load({"CORVUS_REDIS_URL": "redis://h", "CORVUS_SECRET": "s" * 40})
    assert checks.external_store_needs_secret(None) == []


def test_a_secret_that_others_can_read_is_an_error(settings: Any, tmp_path: Path) -> None:
    settings.DATA_DIR = tmp_path
    assert checks.secret_is_private(None) == []
    (tmp_path / "secret").write_text("s")
    (tmp_path / "secret").chmod(0o644)
    assert [e.id for e in checks.secret_is_private(None)] == ["corvus.E002"]
    (tmp_path / "secret").chmod(0o600)
    assert checks.secret_is_private(None) == []


@pytest.mark.django_db
def test_a_stored_room_that_no_longer_holds_is_an_error() -> None:
    Room.objects.create(id="sale", on_outage="open", inside_now="keep", capacity=2**40)
    found = [m.id for m in run_checks(databases=["default"]) if m.id.startswith("queueing")]
    assert found == ["queueing.E001"]


@pytest.mark.django_db
def test_a_stored_price_without_a_payment_page_is_an_error_with_room_and_field() -> None:
    Room.objects.create(id="sale", on_outage="open", inside_now="keep", skip_rate="0.5")
    (found,) = [m for m in run_checks(databases=["default"]) if m.id == "queueing.E001"]
    assert found.msg.startswith("Room sale: skip_url: ")


def test_the_background_worker_reaps_as_often_as_the_setting_says(tmp_path: Path) -> None:
    code = "from corvus_site.celery import app; print(app.conf.beat_schedule['reap-rooms'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "CORVUS_REAPER": "10s",
            "CORVUS_DATA_DIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "corvus_site.settings",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "'schedule': 10.0" in done.stdout
    assert "'expires': 9.0" in done.stdout


def test_a_bad_setting_ends_a_command_with_one_line_and_status_2(tmp_path: Path) -> None:
    done = run("check", CORVUS_DATA_DIR=str(tmp_path), CORVUS_CAPACITY="many")
    assert done.returncode == 2
    assert done.stderr == (
        "error: CORVUS_CAPACITY: “many” is not allowed: it must be a whole number between 0 and"
        " 2147483647.\n"
    )


def test_the_version_is_told() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("corvus 0.")


@pytest.fixture
def _logging_as_before() -> Any:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    logs.configure()


@pytest.mark.usefixtures("_logging_as_before")
def test_a_log_line_is_one_json_object_whoever_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json", "info")
    structlog.get_logger("corvus.x").info("hello", room="main")
    logging.getLogger("library").warning("old %s", "style")
    logging.getLogger("library").debug("not shown")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["room"], ours["level"]) == ("hello", "main", "info")
    assert (theirs["event"], theirs["logger"]) == ("old style", "library")
    assert ours["timestamp"].endswith("Z")


@pytest.mark.usefixtures("_logging_as_before")
def test_what_a_client_sends_cannot_forge_a_log_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text", "info")
    structlog.get_logger("corvus.x").info("bad\nFAKE", value="x\r\nFAKE line")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
