"""What a supervisor is to do, as data: commands to end, children to keep, sockets to hold."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from corvus_site.supervisor.children import Child


@dataclass(frozen=True, slots=True)
class Once:
    """A command that must end well before the next stage; `heed` gets what it printed."""

    child: Child
    heed: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """Children that start together; the next stage waits until all of them are ready."""

    children: tuple[Child, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start, in order, and which listening sockets are held for the children."""

    steps: Sequence[Once | Stage]
    listeners: Sequence[socket.socket] = ()
    greeting: Callable[[], Sequence[str]] = field(default=tuple)
