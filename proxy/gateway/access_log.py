"""One line per served request, written in batches so that no request waits for the disk.

Status polls, health checks and beacons are left out (design §7); of the address only the path is
kept, since queries may hold secrets.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from proxy.gateway.exchange import Exchange

FLUSH_S = 0.25
_MOST_WAITING = 20_000  # lines; what does not fit is counted, and the count is written
_LEFT_OUT = (b"/status", b"/beacon", b"/session", b"/healthz", b"/readyz")


class AccessLog:
    """Collects lines and writes them a few times a second to standard output."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._dropped = 0
        self._flusher: asyncio.Task[None] | None = None

    def note(self, exchange: Exchange, status: int, size: int, started: float, why: str) -> None:
        """Write down one exchange; `started` is monotonic seconds, `size` the body's bytes."""
        if exchange.path.startswith(b"/__corvus/") and exchange.path.endswith(_LEFT_OUT):
            return
        if len(self._lines) >= _MOST_WAITING:
            self._dropped += 1
            return
        line = {
            "at": round(time.time(), 3),
            "client": exchange.client.address,
            "host": exchange.host,
            "method": exchange.method,
            "path": exchange.path.decode("latin-1"),
            "status": status,
            "bytes": size,
            "ms": round((time.monotonic() - started) * 1000, 1),
            "decision": why,
            "request_id": exchange.request_id,
        }
        self._lines.append(json.dumps(line, separators=(",", ":")))
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.get_running_loop().create_task(self._flush_soon())

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_S)
        self.flush()

    def flush(self) -> None:
        """Write what has been collected."""
        lines, self._lines = self._lines, []
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lines.append(json.dumps({"access_log_dropped": dropped}))
        if lines:
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
