"""How log lines look: one event a line, as text or JSON, from structlog and `logging` alike.

No Django: gateway, console, worker and supervisor all call `configure` once, at their start.
"""

from __future__ import annotations

import logging
import sys
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
    """Escape line breaks, so that what a client sent cannot forge a line of its own."""
    for key, value in event.items():
        if isinstance(value, str) and key != "exception" and ("\n" in value or "\r" in value):
            event[key] = value.replace("\r", "\\r").replace("\n", "\\n")
    return event


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
