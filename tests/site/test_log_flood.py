"""Attackers and failing parts cannot fill the disk with log lines, nor forge or colour them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog

from corvus_site import logs
from corvus_site.logs import Flood


@pytest.fixture
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    logs.configure()


@pytest.mark.usefixtures("_logging_as_before")
def test_log_flood_is_cut_and_other_lines_pass(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text", "info")
    for n in range(1000):
        structlog.get_logger("corvus.gateway").warning("store busy", number=n)
        logging.getLogger("django.request").warning("Not Found: %s", f"/{n}")
    structlog.get_logger("corvus.gateway").warning("something else")
    said = capsys.readouterr().err
    assert said.count("store busy") == Flood.MOST
    assert said.count("Not Found") == Flood.MOST
    assert said.count("something else") == 1


def test_log_flood_is_told_once_it_is_over() -> None:
    now = [0.0]
    flood = Flood(lambda: now[0])

    def said(text: str) -> str:
        record = logging.LogRecord("x", logging.WARNING, "", 0, text, (), None)
        return record.getMessage() if flood.filter(record) else ""

    assert [bool(said("lost")) for _ in range(Flood.MOST + 7)] == [True] * Flood.MOST + [False] * 7
    now[0] += Flood.WINDOW_S
    assert said("lost") == "lost [7 like it were left out]"
    assert said("lost") == "lost"
    now[0] += Flood.WINDOW_S
    assert said("lost") == "lost"


@pytest.mark.usefixtures("_logging_as_before")
def test_log_injection_by_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text", "info")
    logging.getLogger("django.request").warning("Not Found: %s", "/\x1b[2J\r\nforged\u2028\x9b1m")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "\\x1b[2J\\r\\nforged\\u2028\\x9b1m" in said
