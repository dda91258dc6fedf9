"""How log lines look: one event a line, as text or JSON, from structlog and `logging` alike.

No Django: gateway, console, worker and supervisor all call `configure` once, at their start.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["text", "json"]


def _timestamp() -> Processor:
    return structlog.processors.TimeStamper(fmt="iso", utc=True)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        _timestamp(),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        structlog.processors.UnicodeDecoder(),
    ]


def _one_line(_logger: WrappedLogger, _name: str, event: EventDict) -> EventDict:
    """Escape line breaks and control characters: what a client sent can neither forge a line of its
    own nor command the terminal that shows it."""
    for key, value in event.items():
        if isinstance(value, str) and key != "exception" and not value.isprintable():
            event[key] = "".join(c if c.isprintable() else _escaped(c) for c in value)
    return event


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class Flood(logging.Filter):
    """Lets the same thing be said so many times in a while: what fails, or attacks, all the time
    must not fill the disk. The next line says how many were left out."""

    MOST = 20
    WINDOW_S = 10.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._began_at = clock()
        self._said: Counter[tuple[str, int, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Count a line; false when it is to be left out."""
        event = record.msg.get("event", "") if isinstance(record.msg, dict) else record.msg
        what = (record.name, record.levelno, str(event))
        now = self._clock()
        if now - self._began_at >= self.WINDOW_S:
            self._began_at = now
            self._said = Counter({k: -n for k, n in self._said.items() if n > self.MOST})
        if (left_out := -self._said[what] - self.MOST) > 0:
            self._said[what] = 0
            _add(record, left_out)
        self._said[what] += 1
        return self._said[what] <= self.MOST


def _add(record: logging.LogRecord, left_out: int) -> None:
    if isinstance(record.msg, dict):  # structlog's
        record.msg = record.msg | {"left_out": left_out}
    else:
        record.msg = f"{record.msg} [{left_out} like it were left out]"


def configure(form: LogFormat = "text", level: str = "info") -> None:
    """Send every line to standard error in one form. Calling it again replaces what was set."""
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if form == "json"
        else structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0)
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_shared(),
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _one_line,
            renderer,
        ],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.addFilter(Flood())
    root = logging.getLogger()
    for old in [h for h in root.handlers if type(h) is logging.StreamHandler]:
        root.removeHandler(old)  # ours of before, or what a library set up
    root.addHandler(handler)
    root.setLevel(level.upper())
    for chatty in ("daphne", "asyncio", "httpx", "httpcore", "kombu", "amqp"):
        logging.getLogger(chatty).setLevel(
            max(logging.WARNING, logging.getLevelName(level.upper()))
        )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_shared(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
