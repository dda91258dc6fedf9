"""Background work of rooms; each task calls one service."""

from __future__ import annotations

import redis
from celery import shared_task

from queueing import reaping


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def reap() -> str:
    """Clear away in the store what nobody drives any more."""
    try:
        return str(reaping.reap())
    except redis.RedisError as error:
        return f"the store cannot be reached: {error}"
