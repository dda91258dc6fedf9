"""Starts, watches and stops a plan of processes: `manage.py up` and `make run`.

The plan is data (`launch` makes the product's, tests make their own). This module owns the order:
start stage by stage, keep alive, drain stage by stage. No Django is imported here.
"""

from __future__ import annotations

import asyncio
import signal
import time
from itertools import groupby

from corvus_site.supervisor.children import ChildFailed, Keeper, run_once
from corvus_site.supervisor.plan import Once, Plan, Stage
from corvus_site.supervisor.say import Voice

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
SAME_STOP_S = 0.5
"""Signals so close together are one: `make` hands on what the whole process group gets anyway."""


class Supervisor:
    """One run of a plan, from start to empty hands."""

    def __init__(self, plan: Plan, voice: Voice) -> None:
        self._plan = plan
        self._voice = voice
        self._keepers: list[Keeper] = []
        self._told_to_stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._told_at = 0.0

    def stop(self) -> None:
        """Begin to drain; called again after a moment: hurry."""
        now = time.monotonic()
        if not self._told_to_stop.is_set():
            self._told_at = now
            self._told_to_stop.set()
        elif now - self._told_at >= SAME_STOP_S:
            self._hurry.set()

    async def run(self) -> int:
        """Run until told to stop; give the exit status: 0, or 1 when it could not start."""
        began = time.monotonic()
        starting = asyncio.create_task(self._start())
        told = asyncio.create_task(self._told_to_stop.wait())
        status = 0
        try:
            await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                starting.cancel()
            elif (error := starting.exception()) is not None:
                if not isinstance(error, ChildFailed):
                    raise error
                self._voice.say(f"error: {error}")
                status = 1
            else:
                for line in self._plan.greeting():
                    self._voice.say(line)
                self._voice.say(f"ready after {time.monotonic() - began:.1f} s; Ctrl-C stops it")
                await told
        finally:
            await asyncio.gather(starting, return_exceptions=True)
            told.cancel()
            await self._drain()
        return status

    async def _start(self) -> None:
        for step in self._plan.steps:
            if isinstance(step, Once):
                output = await run_once(step.child)
                if step.heed is not None:
                    step.heed(output)
            else:
                await self._start_stage(step)

    async def _start_stage(self, stage: Stage) -> None:
        keepers = [Keeper(child, self._voice) for child in stage.children]
        self._keepers += keepers
        for keeper in keepers:
            await keeper.start()
        waits = [asyncio.ensure_future(keeper.wait_ready()) for keeper in keepers]
        try:
            await asyncio.gather(*waits)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _drain(self) -> None:
        """Stop everything: sockets first, so that a closed child refuses and does not swallow."""
        for listener in self._plan.listeners:
            listener.close()
        if any(keeper.pid for keeper in self._keepers):
            self._voice.say("stopping; Ctrl-C again hurries")
        by_stage = sorted(self._keepers, key=lambda keeper: keeper.child.drain_stage)
        for _, members in groupby(by_stage, key=lambda keeper: keeper.child.drain_stage):
            await asyncio.gather(*(keeper.stop(self._hurry) for keeper in members))


async def supervise(plan: Plan, voice: Voice) -> int:
    """Run a plan under SIGTERM, SIGINT and SIGHUP; give the exit status."""
    supervisor = Supervisor(plan, voice)
    loop = asyncio.get_running_loop()
    heeded = [n for n in SIGNALS if signal.getsignal(n) is not signal.SIG_IGN]  # nohup means it
    for number in heeded:
        loop.add_signal_handler(number, supervisor.stop)
    try:
        return await supervisor.run()
    finally:
        for number in heeded:  # everything has stopped: one more must not spoil the exit status
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
