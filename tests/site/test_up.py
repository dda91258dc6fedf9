"""`manage.py up` when something cannot stand: one line, status 2, nothing begun."""

from __future__ import annotations

import fcntl
import os
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corvus_site.env import SETTINGS
from tests.support.running import Running

Refuse = Callable[..., str]
FREE = dict.fromkeys(
    ("CORVUS_LISTEN", "CORVUS_CONSOLE_LISTEN", "CORVUS_DEMO_LISTEN"), "127.0.0.1:0"
)


@pytest.fixture
def refuse(tmp_path: Path) -> Iterator[Refuse]:
    """Run `manage.py up`, expect a refusal, and give its one line."""
    started: list[Running] = []

    def run(*flags: str, **environ: str) -> str:
        given = {"CORVUS_DATA_DIR": str(tmp_path / "data"), **FREE, **environ}
        started.append(Running(["manage.py", "up", *flags], given))
        status, errors = started[-1].wait(20)
        assert status == 2, started[-1].story()
        assert started[-1].left() == {}
        assert re.fullmatch(r"error: [^\n]+\n", errors), errors
        return errors.strip()

    yield run
    for running in started:
        running.end()


def test_a_bad_value_names_setting_value_and_what_is_allowed(
    refuse: Refuse, tmp_path: Path
) -> None:
    line = refuse(CORVUS_CAPACITY="lots")
    assert line.startswith("error: CORVUS_CAPACITY: “lots” is not allowed: it must be")
    assert not (tmp_path / "data").exists()


def test_a_flag_overrides_the_environment_and_is_checked_alike(refuse: Refuse) -> None:
    assert "CORVUS_GRANT_TTL: “soon”" in refuse("--grant-ttl", "soon", CORVUS_GRANT_TTL="60s")


def test_values_that_contradict_each_other_are_refused(refuse: Refuse) -> None:
    line = refuse("--active-ttl", "20s", "--refresh", "15s")
    assert line.startswith("error: CORVUS_ACTIVE_TTL: 20 s is not allowed")


def test_an_unknown_flag_is_refused(refuse: Refuse) -> None:
    assert "--capacitty" in refuse("--capacitty=5")


@pytest.mark.parametrize("secret", [s.name for s in SETTINGS.values() if s.secret])
def test_a_secret_has_no_flag_for_process_lists_show_flags(secret: str) -> None:
    assert SETTINGS[secret].flag == ""


@pytest.mark.parametrize("setting", list(FREE))
def test_a_port_in_use_is_named_with_its_setting(refuse: Refuse, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        port = taken.getsockname()[1]
        line = refuse(**{setting: f"127.0.0.1:{port}"})
    assert line == f"error: {setting}: cannot listen on “127.0.0.1:{port}”: the port is in use."


def test_a_port_in_use_on_ipv4_counts_for_all_interfaces_too(refuse: Refuse) -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as taken:
        assert "the port is in use" in refuse(CORVUS_LISTEN=f":{taken.getsockname()[1]}")


def test_an_address_of_another_machine_is_refused(refuse: Refuse) -> None:
    line = refuse(CORVUS_LISTEN="192.0.2.1:8080")
    assert line.startswith("error: CORVUS_LISTEN: cannot listen on “192.0.2.1:8080”")


def test_a_data_folder_that_cannot_be_written_is_named(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    line = refuse(CORVUS_DATA_DIR=str(tmp_path / "file" / "data"))
    assert line.startswith("error: CORVUS_DATA_DIR: “")
    assert "cannot be written" in line


def test_a_data_folder_serves_one_corvus_at_a_time(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    lock = os.open(tmp_path / "data" / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "is in use by another Corvus" in refuse()
    finally:
        os.close(lock)


def test_a_data_folder_whose_sockets_would_not_fit_is_refused(
    refuse: Refuse, tmp_path: Path
) -> None:
    assert "is too long" in refuse(CORVUS_DATA_DIR=str(tmp_path / ("x" * 90)))


def test_an_external_store_needs_a_shared_secret(refuse: Refuse) -> None:
    assert refuse(CORVUS_REDIS_URL="redis://127.0.0.1:1/0").startswith("error: CORVUS_SECRET: ")


def test_an_external_store_that_is_not_there_is_said_without_its_password(refuse: Refuse) -> None:
    line = refuse(
        CORVUS_REDIS_URL="redis://:very-secret@127.0.0.1:1/0",
        CORVUS_SECRET="s" * 32,
    )
    assert line.startswith("error: CORVUS_REDIS_URL: the store cannot be used: ")
    assert "very-secret" not in line


def test_a_certificate_that_cannot_be_used_is_refused(refuse: Refuse, tmp_path: Path) -> None:
    here = {"CORVUS_LISTEN_TLS": "127.0.0.1:0"}
    assert "CORVUS_TLS_CERT: it must be set" in refuse(**here)
    (tmp_path / "cert.pem").write_text("no certificate")
    files = {name: str(tmp_path / "cert.pem") for name in ("CORVUS_TLS_CERT", "CORVUS_TLS_KEY")}
    assert "cannot be used together" in refuse(**here, **files)


def test_a_listener_that_must_be_there_cannot_be_emptied(refuse: Refuse) -> None:
    assert refuse("--listen", "").startswith("error: CORVUS_LISTEN: it must name an address")


def test_help_lists_every_setting_that_has_a_flag(tmp_path: Path) -> None:
    running = Running(["manage.py", "up", "--help"])
    status, _ = running.wait()
    text = "\n".join(running.lines)
    running.end()
    assert status == 0
    assert [s.flag for s in SETTINGS.values() if s.flag and s.flag not in text] == []
