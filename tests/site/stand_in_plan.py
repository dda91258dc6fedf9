"""A plan of real but small processes for the supervisor: a store, and two shops on one port.

The tests start it as `python -m tests.site.stand_in_plan <data folder> [what to break]`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from corvus_site.env import HostPort
from corvus_site.supervisor.children import Child
from corvus_site.supervisor.data_folder import open_data_folder
from corvus_site.supervisor.embedded_store import embedded_store, store_program
from corvus_site.supervisor.listeners import loopback_of, open_listeners, url_of
from corvus_site.supervisor.plan import Once, Plan, Stage
from corvus_site.supervisor.probes import all_answer
from corvus_site.supervisor.say import Speaker
from corvus_site.supervisor.supervising import supervise


def plan(folder: Path, broken: str) -> Plan:
    """Make it; `broken` names what goes wrong."""
    data = open_data_folder("CORVUS_DATA_DIR", folder)
    listeners = open_listeners("CORVUS_LISTEN", HostPort("127.0.0.1", 0), 2)
    ready = all_answer(*loopback_of(listeners[0]), "/healthz", 2)
    shops = tuple(
        Child(
            name=f"shop-{number}",
            argv=(
                sys.executable,
                "-m",
                "corvus_site.demo",
                "--limit=500",
                f"--fd={listener.fileno()}",
            ),
            pass_fds=(listener.fileno(),),
            ready=ready,
        )
        for number, listener in enumerate(listeners)
    )
    stubborn = Child(
        name="stubborn",
        argv=("/bin/sh", "-c", "trap '' TERM; echo here; while :; do sleep 1; done"),
        ready_line="here",
        stop_within_s=1 if broken == "stubborn" else 30,
    )
    once = Child(name="preparation", argv=("/bin/sh", "-c", "echo preparing; test $0 = ok", "ok"))
    if broken == "preparation":
        once = Child(name="preparation", argv=("/bin/sh", "-c", "echo no such table >&2; exit 3"))
    if broken == "shop":
        shops += (
            Child(
                name="shop-2", argv=("/bin/sh", "-c", "echo no stock; exit 4"), ready_line="open"
            ),
        )
    if broken in ("stubborn", "hurry"):
        shops += (stubborn,)
    store = embedded_store(store_program(), data.path / "store", data.run, lasting=True)
    return Plan(
        [Stage((store,)), Once(once), Stage(shops)],
        listeners,
        lambda: [f"shop at {url_of(listeners[0])}/"],
    )


def main() -> None:
    """Run it."""
    speaker = Speaker(sys.stdout)
    broken = sys.argv[2] if len(sys.argv) > 2 else ""
    os.environ["PYTHONUNBUFFERED"] = "1"
    status = asyncio.run(supervise(plan(Path(sys.argv[1]), broken), speaker))
    speaker.close()
    sys.exit(status)


if __name__ == "__main__":
    main()
