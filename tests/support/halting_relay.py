"""A relay before the store: notes what a gateway asks, and can halt it at one kind of call."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import hiredis


class HaltingRelay:
    """Carries connections to the store until one of them makes the call that was named."""

    def __init__(self, store: str, path: str) -> None:
        self.url = f"unix://{path}?db=0"
        self.asked: list[str] = []  # operations of the room script, and other commands' names
        self.halted = asyncio.Event()
        self._store = store
        self._operation = b""
        self._before = False
        self._over = asyncio.Event()
        self._carrying: set[asyncio.Task[None]] = set()

    def halt_at(self, operation: str, *, before: bool) -> None:
        """Halt the next call of an operation: the store never gets it, or its answer gets lost."""
        self._before = before
        self._operation = b"\r\n" + operation.encode() + b"\r\n"

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        mine = asyncio.current_task()
        assert mine is not None
        self._carrying.add(mine)
        to_reader, to_writer = await asyncio.open_unix_connection(self._store)
        called = asyncio.Event()
        with contextlib.suppress(OSError):
            await asyncio.gather(
                self._questions(reader, to_writer, called),
                self._answers(to_reader, writer, called),
            )
        for end in (writer, to_writer):
            end.close()

    async def _questions(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, called: asyncio.Event
    ) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(65536):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                self.asked.append(_name(command))
            if self._operation and self._operation in data:
                called.set()
                if self._before:
                    self.halted.set()
                    await self._over.wait()
                    break
            writer.write(data)
            await writer.drain()
        writer.close()

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, called: asyncio.Event
    ) -> None:
        while data := await reader.read(65536):
            if called.is_set():
                self.halted.set()
                await self._over.wait()
                break
            writer.write(data)
            await writer.drain()

    async def end(self) -> None:
        """Let everything that is halted end."""
        self._over.set()
        await asyncio.gather(*self._carrying)


def _name(command: list[Any]) -> str:
    """Name a command; of a script call (EVALSHA digest number-of-keys keys…) the operation."""
    is_script = command[0].upper() == b"EVALSHA"
    word: bytes = command[3 + int(command[2])] if is_script else command[0]
    return word.decode()


@contextlib.asynccontextmanager
async def halting_relay(store_url: str) -> AsyncIterator[HaltingRelay]:
    """Run a relay before the store of this unix-socket URL."""
    with tempfile.TemporaryDirectory(prefix="corvus-relay-") as folder:
        path = str(Path(folder) / "store.sock")
        relay = HaltingRelay(store_url.removeprefix("unix://").partition("?")[0], path)
        server = await asyncio.start_unix_server(relay.carry, path)
        try:
            yield relay
        finally:
            server.close()
            await relay.end()
