"""`manage.py doctor`: look at an installation and say what is wrong with it, and what to do."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from django.conf import settings
from django.core.checks import run_checks
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from corvus_site.env import BadSetting, Source
from corvus_site.supervisor.embedded_store import NoStoreProgram, store_program
from corvus_site.supervisor.external_store import examine
from proxy import queries

LEAST_FREE_BYTES = 200 * 1024 * 1024
Findings = Iterator[tuple[str, str]]  # ("ok" | "warning" | "error", a sentence)


def _settings() -> Findings:
    own = settings.CORVUS
    changed = [s.name for s in own.settings() if own.source(s.name) is not Source.DEFAULT]
    yield "ok", f"settings can stand; set here: {', '.join(changed) or 'none'}"
    for message in run_checks():
        level = "error" if message.is_serious() else "warning"
        yield level, f"{message.msg} {message.hint or ''}"


def _data_folder() -> Findings:
    folder = settings.DATA_DIR
    free = shutil.disk_usage(folder).free
    level = "ok" if free >= LEAST_FREE_BYTES else "warning"
    yield level, f"data folder {folder}: {free // 2**20} MB free"
    if folder.stat().st_mode & 0o077:
        yield "warning", f"other users of this machine can look into {folder}: chmod 700 {folder}"


def _overcommit_is_off() -> bool:
    try:
        return Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "1"
    except OSError:
        return False  # not Linux


def _store() -> Findings:
    external = bool(settings.CORVUS.value("CORVUS_REDIS_URL"))
    if not external:
        try:
            yield "ok", f"embedded store: {store_program()}"
        except NoStoreProgram as error:
            yield "error", str(error)
        if _overcommit_is_off():
            yield (
                "warning",
                "the store may fail to rewrite its file when memory is short: sysctl"
                " vm.overcommit_memory=1",
            )
    try:
        for warning in asyncio.run(examine(settings.STORE_URL)):
            yield "warning", warning
        yield "ok", "the store answers"
    except BadSetting as bad:
        yield (
            ("error" if external else "warning"),
            (str(bad) if external else "the embedded store does not run: `manage.py up` starts it"),
        )


def _database() -> Findings:
    try:
        executor = MigrationExecutor(connection)
        waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        yield "error", f"the database cannot be used: {error}"
        return
    if waiting:
        yield "warning", f"{len(waiting)} migrations wait: `manage.py migrate` (`up` does it too)"
        return
    yield "ok", f"database {connection.vendor} is up to date"
    newest = queries.newest_version()
    if newest is None:
        yield "warning", "no configuration has been published: `manage.py publish`"
    elif queries.is_behind():
        yield "warning", f"configuration {newest.number} has not reached the store"
    else:
        yield "ok", f"configuration {newest.number} is in force"


def _origin() -> Findings:
    origin = settings.CORVUS.value("CORVUS_UPSTREAM")
    if not origin:
        yield "ok", "CORVUS_UPSTREAM is empty: the demo site stands in"
        return
    try:
        answer = httpx.get(f"{origin}/", timeout=5, verify=False)  # noqa: S501 - is it there at all?
        yield "ok", f"the site {origin} answers with {answer.status_code}"
    except httpx.HTTPError as error:
        yield "error", f"CORVUS_UPSTREAM: {origin} does not answer: {error}"


class Command(BaseCommand):
    """Reads only; changes nothing."""

    help = "Look at settings, data folder, store, database and site, and say what is wrong."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        """Print a line for each finding.

        Raises:
            CommandError: there is at least one error.
        """
        self.stdout.write(f"ok       Python {sys.version.split()[0]}")
        errors = 0
        for look in (_settings, _data_folder, _store, _database, _origin):
            for level, sentence in look():
                errors += level == "error"
                self.stdout.write(f"{level:<8} {sentence}")
        if errors:
            raise CommandError(f"errors: {errors}, see above.")
