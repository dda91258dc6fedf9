"""Child processes as data, and what keeps one of them alive.

Owns: starting a child in a session of its own, collecting its output, waiting until it is ready,
restarting it with back-off, stopping it. The order of things belongs to `corvus_site.supervisor`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from corvus_site.supervisor.leash import tied_to
from corvus_site.supervisor.say import Voice

Probe = Callable[[], Awaitable[bool]]

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 30.0
STABLE_S = 60.0
TAIL_LINES = 25
LONGEST_LINE = 16_384


class ChildFailed(Exception):
    """A child ended or stayed silent before it was ready; the message ends with its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One process to keep alive. Spans are seconds."""

    name: str
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    pass_fds: tuple[int, ...] = ()
    ready: Probe | None = None  # asked again and again until it says yes
    ready_line: str = ""  # or: a word that the child prints when it is ready; neither: at once
    ready_within_s: float = 120.0
    stop_within_s: float = 10.0
    drain_stage: int = 0  # stages are stopped one after the other, the lowest first
    must_stop_orderly: bool = False  # a hurried stop still lets it write its data
    unsaid: tuple[str, ...] = ()  # lines with one of these are kept for a failure's story alone


def next_delay(delay_s: float, lived_s: float) -> float:
    """Give the pause before the next start: doubled each time, short again after a stable life."""
    if lived_s >= STABLE_S:
        return FIRST_DELAY_S
    return min(LONGEST_DELAY_S, max(FIRST_DELAY_S, delay_s * 2))


class Keeper:
    """Keeps one child alive from `start()` to `stop()`."""

    def __init__(self, child: Child, voice: Voice) -> None:
        self.child = child
        self._voice = voice
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._line_seen = asyncio.Event()
        self._stopping = False

    @property
    def pid(self) -> int | None:
        """The process id, or None while nothing runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start the child; `wait_ready` says when it can be used.

        Raises:
            ChildFailed: the program cannot be started at all.
        """
        try:
            await self._spawn()
        except OSError as error:
            raise ChildFailed(f"{self.child.name} cannot be started: {error}") from error

    async def wait_ready(self) -> None:
        """Return when the child is ready, and watch it from then on.

        Raises:
            ChildFailed: it ended, or was not ready in time.
        """
        assert self._process is not None, "start() first"  # noqa: S101
        gone = asyncio.ensure_future(self._process.wait())
        ready = asyncio.ensure_future(self._until_ready())
        try:
            await asyncio.wait(
                {gone, ready},
                timeout=self.child.ready_within_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if gone.done():
                await self._finish_reading()
                raise ChildFailed(self._story(f"ended with {_how(gone.result())} while starting"))
            if not ready.done():
                raise ChildFailed(
                    self._story(f"was not ready within {self.child.ready_within_s:g} s")
                )
            ready.result()
        finally:
            for task in (gone, ready):
                task.cancel()
            await asyncio.gather(gone, ready, return_exceptions=True)
        self._watcher = asyncio.create_task(self._watch())

    def announce_stop(self) -> None:
        """Send SIGTERM now; a child that ends from here on is not restarted."""
        self._stopping = True
        self._signal(signal.SIGTERM)

    async def stop(self, hurry: asyncio.Event) -> None:
        """Stop the child: SIGTERM, then SIGKILL to its session after its time or in a hurry."""
        already = self._stopping
        self._stopping = True
        if self._watcher is not None and self.pid is None:
            self._watcher.cancel()  # it may be sleeping before a restart
        if not already:
            self._signal(signal.SIGTERM)
        if self._process is not None:
            await self._wait_or_kill(self._process, hurry)
        if self._watcher is not None:
            await asyncio.gather(self._watcher, return_exceptions=True)
        await self._finish_reading()

    async def _wait_or_kill(
        self, process: asyncio.subprocess.Process, hurry: asyncio.Event
    ) -> None:
        gone = asyncio.ensure_future(process.wait())
        hurried = asyncio.ensure_future(hurry.wait())
        try:
            await asyncio.wait(
                {gone, hurried},
                timeout=self.child.stop_within_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not gone.done() and self.child.must_stop_orderly:
                await asyncio.wait({gone}, timeout=5)
            if not gone.done():
                self._voice.say(f"{self.child.name} did not stop in time; killed")
            # The session may hold more than the child itself: its forks go with it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await gone
        finally:
            hurried.cancel()
            await asyncio.gather(hurried, return_exceptions=True)

    async def _spawn(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self.child.argv,
            env=dict(self.child.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=self.child.pass_fds,
            start_new_session=True,  # so that Ctrl-C reaches the supervisor alone
            preexec_fn=tied_to(os.getpid()),
        )
        assert self._process.stdout is not None  # noqa: S101
        self._reader = asyncio.create_task(self._read(self._process.stdout))

    async def _watch(self) -> None:
        delay_s = FIRST_DELAY_S / 2
        while True:
            assert self._process is not None  # noqa: S101
            started = time.monotonic()
            code = await self._process.wait()
            if self._stopping:
                return
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            delay_s = next_delay(delay_s, time.monotonic() - started)
            self._voice.say(
                f"{self.child.name} (process {self._process.pid}) ended with {_how(code)};"
                f" starting it again in {delay_s:g} s"
            )
            await asyncio.sleep(delay_s)
            while not await self._respawned():
                delay_s = next_delay(delay_s, 0)
                await asyncio.sleep(delay_s)

    async def _respawned(self) -> bool:
        try:
            await self._spawn()
        except OSError as error:
            self._voice.say(f"{self.child.name} cannot be started: {error}")
            return False
        return True

    async def _until_ready(self) -> None:
        if self.child.ready_line:
            await self._line_seen.wait()
        if self.child.ready is not None:
            while not await self.child.ready():  # noqa: ASYNC110 - another process's state
                await asyncio.sleep(0.05)

    async def _read(self, stream: asyncio.StreamReader) -> None:
        rest = b""
        while part := await stream.read(65_536):
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > LONGEST_LINE:
                lines, rest = [*lines, rest], b""
            self._take(lines)
        if rest:
            self._take([rest])

    def _take(self, lines: list[bytes]) -> None:
        texts = [raw.decode(errors="replace") for raw in lines]
        self._tail.extend(texts)
        unsaid = self.child.unsaid
        self._voice.relay(self.child.name, [t for t in texts if not any(u in t for u in unsaid)])
        if self.child.ready_line and any(self.child.ready_line in text for text in texts):
            self._line_seen.set()

    async def _finish_reading(self) -> None:
        if self._reader is not None:
            # A fork that still holds the pipe must not hold us.
            await asyncio.wait({self._reader}, timeout=1)
            self._reader.cancel()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _story(self, what: str) -> str:
        lines = "".join(f"\n    {line}" for line in self._tail)
        return f"{self.child.name} {what}" + (f"; its last lines:{lines}" if lines else "")


def _how(code: int) -> str:
    if code >= 0:
        return f"status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


async def run_once(child: Child) -> str:
    """Run a command to its end and give what it printed.

    Raises:
        ChildFailed: it could not be started, ended with another status than 0 or took too long.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *child.argv,
            env=dict(child.environ),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=tied_to(os.getpid()),
        )
    except OSError as error:
        raise ChildFailed(f"{child.name} cannot be started: {error}") from error
    try:
        async with asyncio.timeout(child.ready_within_s):
            raw, _ = await process.communicate()
    except TimeoutError:
        raise ChildFailed(f"{child.name} took longer than {child.ready_within_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    output = raw.decode(errors="replace")
    if process.returncode != 0:
        lines = "".join(f"\n    {line}" for line in output.splitlines()[-TAIL_LINES:])
        raise ChildFailed(f"{child.name} ended with {_how(process.returncode or 0)}:{lines}")
    return output
