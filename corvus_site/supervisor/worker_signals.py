"""What the worker tells the supervisor, and how its beat ends with it (`worker --include`)."""

from __future__ import annotations

import os
from pathlib import Path

from celery.signals import beat_embedded_init, worker_ready

from corvus_site.supervisor.leash import tied_to

READY_FILE = "worker.ready"


def say_ready(**_: object) -> None:
    """Leave a file in the run folder: the worker consumes tasks from now on."""
    if folder := os.environ.get("CORVUS_MACHINE_DIR"):
        Path(folder, READY_FILE).touch()


def tie_beat(**_: object) -> None:
    """Tie the embedded beat, a fork of the worker, to the worker: else it outlives a kill."""
    tied_to(os.getppid())()


worker_ready.connect(say_ready)
beat_embedded_init.connect(tie_beat)
