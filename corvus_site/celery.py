"""The background worker: the Celery application and its schedule, which is this literal."""

from __future__ import annotations

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import setup_logging
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "corvus_site.settings")


def keep_our_logging(**_: Any) -> None:
    """Leave log lines as Django's settings made them: Celery would drop all below a warning."""
    logging.getLogger("celery").setLevel(logging.WARNING)  # a line for each task is its own idea


setup_logging.connect(keep_our_logging)

app = Celery("corvus")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.conf.beat_schedule = {
    "reap-rooms": {
        "task": "queueing.tasks.reap",
        "schedule": (reaper_s := settings.CORVUS.value("CORVUS_REAPER")),
        "options": {"expires": reaper_s * 0.9},
    },
    "keep-published": {
        "task": "proxy.tasks.keep_published",
        "schedule": 10.0,
        "options": {"expires": 9},
    },
    "prune-versions": {
        "task": "proxy.tasks.prune_versions",
        "schedule": 3600.0,
        "options": {"expires": 3000},
    },
}
