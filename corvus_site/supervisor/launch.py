"""The product's own plan: which processes, with which environment, in which order. No Django.

Checks everything that can be checked before anything starts: settings, data folder, ports.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corvus_site import backends
from corvus_site.env import BadSetting, Effective, Source, load, unknown_names
from corvus_site.supervisor import embedded_store, external_store, flags
from corvus_site.supervisor.child_environment import for_child, for_gateway, for_stranger
from corvus_site.supervisor.children import Child
from corvus_site.supervisor.data_folder import DataFolder, open_data_folder
from corvus_site.supervisor.listeners import loopback_of, open_listeners, url_of
from corvus_site.supervisor.plan import Once, Plan, Stage
from corvus_site.supervisor.probes import all_answer, answers_http, exists
from corvus_site.supervisor.say import Speaker, Voice

PYTHON = sys.executable
DEMO_SETTINGS = {"CORVUS_CAPACITY": "3", "CORVUS_ACTIVE_TTL": "60s"}
"""With the demo site a line should be seen soon: few places, free again after a minute."""


@dataclass(slots=True)
class Prepared:
    """All that was checked and opened, and the plan that uses it."""

    folder: DataFolder
    gateways: list[socket.socket] = field(default_factory=list)
    gateways_tls: list[socket.socket] = field(default_factory=list)
    console: list[socket.socket] = field(default_factory=list)
    demo: list[socket.socket] = field(default_factory=list)
    setup_token: str = ""
    store_answers: bool = True
    console_is_secure: bool = False
    plan: Plan = field(default_factory=lambda: Plan(()))

    def listeners(self) -> list[socket.socket]:
        """Give every socket that is held."""
        return [*self.gateways, *self.gateways_tls, *self.console, *self.demo]

    def close(self) -> None:
        """Give back sockets, lock and temporary folders."""
        for listener in self.listeners():
            listener.close()
        self.folder.close()


def prepare(arguments: Sequence[str], speaker: Speaker) -> Prepared:
    """Check settings, folder, ports and an external store, and make the plan.

    Raises:
        BadSetting: something cannot stand; nothing is left open.
    """
    given = flags.parse(arguments)
    effective = load(os.environ, given)
    speaker.json_lines = effective.value("CORVUS_LOG_FORMAT") == "json"
    for name in unknown_names(os.environ):
        speaker.say(f"warning: {name} is set, but Corvus has no such setting")
    prepared = Prepared(open_data_folder("CORVUS_DATA_DIR", effective.value("CORVUS_DATA_DIR")))
    try:
        backends.database(effective.value("DATABASE_URL"), prepared.folder.path)
        _open_listeners(prepared, effective)
        _examine_store(prepared, effective, speaker)
        environ = _environment(prepared, effective, given, speaker)
        prepared.plan = _plan(prepared, effective, environ)
    except BaseException:
        prepared.close()
        raise
    return prepared


def _examine_store(prepared: Prepared, effective: Effective, voice: Voice) -> None:
    url: str = effective.value("CORVUS_REDIS_URL")
    if not url:
        return
    if not effective.value("CORVUS_SECRET"):
        raise BadSetting(
            "CORVUS_SECRET",
            "it must be set, because CORVUS_REDIS_URL is: all who share a store share it.",
        )
    try:
        for warning in asyncio.run(external_store.examine(url)):
            voice.say(f"warning: {warning}")
    except BadSetting as bad:
        if not (prepared.folder.path / "snapshot.json").exists():
            raise
        # A machine that has served before goes on with the configuration that it knows.
        prepared.store_answers = False
        voice.say(f"warning: {bad}")


def _open_listeners(prepared: Prepared, effective: Effective) -> None:
    count = effective.value("CORVUS_GATEWAYS") or os.cpu_count() or 1

    def opened(setting: str, count: int) -> list[socket.socket]:
        address = effective.value(setting)
        if not address:
            raise BadSetting(setting, "it must name an address, such as 127.0.0.1:8080.")
        return open_listeners(setting, address, count)

    prepared.gateways = opened("CORVUS_LISTEN", count)
    if effective.value("CORVUS_LISTEN_TLS"):
        _check_certificate(effective)
        prepared.gateways_tls = opened("CORVUS_LISTEN_TLS", count)
    prepared.console = opened("CORVUS_CONSOLE_LISTEN", 1)
    prepared.console_is_secure = not effective.value("CORVUS_CONSOLE_LISTEN").is_loopback
    if not effective.value("CORVUS_UPSTREAM"):
        prepared.demo = opened("CORVUS_DEMO_LISTEN", 1)


def _check_certificate(effective: Effective) -> None:
    certificate, key = effective.value("CORVUS_TLS_CERT"), effective.value("CORVUS_TLS_KEY")
    if not certificate:
        raise BadSetting("CORVUS_TLS_CERT", "it must be set, because CORVUS_LISTEN_TLS is.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:  # ssl.SSLError is one
        raise BadSetting(
            "CORVUS_TLS_CERT",
            f"“{certificate}” and CORVUS_TLS_KEY “{key}” cannot be used together: {error}.",
        ) from None


def _environment(
    prepared: Prepared, effective: Effective, given: Mapping[str, str], voice: Voice
) -> dict[str, str]:
    environ = for_child(prepared.folder, effective, given)
    if prepared.demo:
        environ["CORVUS_UPSTREAM"] = url_of(prepared.demo[0])
        chosen = {
            name: text
            for name, text in DEMO_SETTINGS.items()
            if effective.source(name) is Source.DEFAULT
        }
        environ |= chosen
        if chosen:
            said = " and ".join(f"{name}={text}" for name, text in chosen.items())
            voice.say(f"demo site: {said} unless you say otherwise, so that a line is soon seen")
    return environ


def _plan(prepared: Prepared, effective: Effective, environ: dict[str, str]) -> Plan:
    def heed(output: str) -> None:
        for line in output.splitlines():
            if line.startswith("setup_token="):
                prepared.setup_token = line

    steps: list[Once | Stage] = []
    if not effective.value("CORVUS_REDIS_URL"):
        steps.append(Stage((_store(prepared.folder),)))
    ready = Child(
        name="preparation",
        argv=(PYTHON, "-m", "django", "prepare"),
        environ=environ,
        ready_within_s=600,  # migrations of a large history
    )
    steps.append(Once(ready, heed))
    steps.append(Stage(_serving(prepared, effective, environ)))
    return Plan(steps, prepared.listeners(), lambda: _greeting(prepared))


def _store(folder: DataFolder) -> Child:
    try:
        program = embedded_store.store_program()
    except embedded_store.NoStoreProgram as error:
        raise BadSetting("CORVUS_REDIS_URL", str(error)) from None
    return embedded_store.embedded_store(
        program, folder.path / "store", folder.run, lasting=folder.lasting
    )


def _serving(
    prepared: Prepared, effective: Effective, environ: dict[str, str]
) -> tuple[Child, ...]:
    children = [_worker(prepared, environ), _console(prepared, effective, environ)]
    if prepared.demo:
        children.append(_demo(prepared.demo[0], environ))
    return (*children, *_gateways(prepared, effective, environ))


def _worker(prepared: Prepared, environ: dict[str, str]) -> Child:
    schedule = str(prepared.folder.path / "schedule")
    ready = prepared.folder.run / "worker.ready"
    options = ("--pool", "threads", "-c", "2", "-B", "-s", schedule)
    signals = ("--include", "corvus_site.supervisor.worker_signals")
    return Child(
        name="worker",
        argv=(PYTHON, "-m", "celery", "-q", "-A", "corvus_site", "worker", *options, *signals),
        # Its warning of root is about pickled tasks, which are not accepted here.
        environ=environ | {"PYTHONWARNINGS": "ignore:You're running the worker"},
        ready=(lambda: exists(ready)) if prepared.store_answers else None,
        stop_within_s=20,
        drain_stage=2,
        unsaid=("worker: Warm shutdown",),
    )


def _console(prepared: Prepared, effective: Effective, environ: dict[str, str]) -> Child:
    listener = prepared.console[0]
    fd = listener.fileno()
    host, port = loopback_of(listener)
    argv = _server("corvus_site.asgi:application")
    secure = prepared.console_is_secure
    if secure:
        # Only now: this import is the slowest of all, and a console on loopback needs none.
        from corvus_site.supervisor.console_certificate import ensure_certificate

        try:
            files = ensure_certificate(
                prepared.folder.path, effective.value("CORVUS_CONSOLE_LISTEN").host
            )
        except (OSError, ValueError) as error:
            raise BadSetting(
                "CORVUS_DATA_DIR", f"the console's certificate cannot be used: {error}."
            ) from None
        argv += _tls(fd, files.certificate, files.key)
    else:
        argv += ("--fd", str(fd))
    return Child(
        name="console",
        argv=argv,
        environ=environ,
        pass_fds=(fd,),
        ready=lambda: answers_http(host, port, "/", secure=secure),
        drain_stage=1,
    )


def _demo(listener: socket.socket, environ: dict[str, str]) -> Child:
    host, port = loopback_of(listener)
    return Child(
        name="demo",
        argv=(PYTHON, "-m", "corvus_site.demo", "--fd", str(listener.fileno())),
        environ=for_stranger(environ),
        pass_fds=(listener.fileno(),),
        ready=lambda: answers_http(host, port, "/healthz"),
        stop_within_s=3,
        drain_stage=3,
    )


def _gateways(
    prepared: Prepared, effective: Effective, environ: dict[str, str]
) -> tuple[Child, ...]:
    environ = for_gateway(environ, effective)
    host, port = loopback_of(prepared.gateways[0])
    ready = all_answer(host, port, "/__corvus/healthz", len(prepared.gateways))
    children = []
    for number, listener in enumerate(prepared.gateways):
        fds = [listener.fileno()]
        argv = (*_server("corvus_site.gateway_asgi:application"), "--fd", str(fds[0]))
        if prepared.gateways_tls:
            fds.append(prepared.gateways_tls[number].fileno())
            argv += _tls(
                fds[1], effective.value("CORVUS_TLS_CERT"), effective.value("CORVUS_TLS_KEY")
            )
        children.append(
            Child(
                name=f"gateway-{number + 1}",
                argv=argv,
                environ=environ,
                pass_fds=tuple(fds),
                ready=ready,
                stop_within_s=effective.value("CORVUS_DRAIN") + 5,
            )
        )
    return tuple(children)


def _server(app: str) -> tuple[str, ...]:
    return (PYTHON, "-m", "corvus_site.server", "--app", app)


def _tls(fd: int, certificate: Path, key: Path) -> tuple[str, ...]:
    return ("--tls-fd", str(fd), "--tls-cert", str(certificate), "--tls-key", str(key))


def _greeting(prepared: Prepared) -> list[str]:
    lines = [f"site     {url_of(prepared.gateways[0])}/"]
    if prepared.gateways_tls:
        lines.append(f"         {url_of(prepared.gateways_tls[0], 'https')}/")
    scheme = "https" if prepared.console_is_secure else "http"
    lines.append(f"console  {url_of(prepared.console[0], scheme)}/")
    if prepared.demo:
        lines.append(f"demo     {url_of(prepared.demo[0])}/ (the site behind the gateway)")
    if prepared.setup_token:
        lines.append(prepared.setup_token)
    return lines
