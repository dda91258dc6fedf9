"""The background worker: the Celery application and its schedule, which is this literal."""

from __future__ import annotations

import os

from celery import Celery
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "corvus_site.settings")

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
