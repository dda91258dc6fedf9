"""Background work of the gateway's configuration; each task calls one service."""

from __future__ import annotations

from celery import shared_task

from proxy import publishing


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def keep_published() -> str:
    """Bring the newest configuration into a store that lacks it."""
    try:
        return publishing.keep_published()
    except publishing.STORE_ERRORS as error:
        return f"the store cannot be reached: {error}"


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def prune_versions() -> int:
    """Delete old versions."""
    return publishing.prune_versions()
