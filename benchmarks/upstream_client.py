"""CPU and rate of the byte path's parts against a raw origin in a process of its own.

    python -m benchmarks.upstream_client      client alone, with headers and forwarder, big bodies

CPU is that of this process alone (`time.process_time`), so the origin's is not in it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

from proxy.gateway.forward import forward
from proxy.gateway.headers import Sender, origin_head
from proxy.gateway.upstream import UpstreamClient
from proxy.gateway.upstream_messages import Origin, RequestHead

SMALL = (
    b"HTTP/1.1 200 OK\r\nServer: raw\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\nContent-Length: 200\r\n\r\n" + b"x" * 200
)
BIG = 1 << 30
LINES = [
    (b"host", b"shop.example"),
    (b"user-agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"),
    (b"accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    (b"accept-language", b"en,de;q=0.7"),
    (b"accept-encoding", b"gzip, deflate, br, zstd"),
    (b"cookie", b"sid=0123456789abcdef; corvus_main=v2.1.a.main.AAAAAAAAAAAAAAAA.1.2.abcdefghijkl"),
    (b"sec-fetch-mode", b"navigate"),
    (b"sec-fetch-dest", b"document"),
]


class RawOrigin(asyncio.Protocol):
    """Answers each head at once; `/big` with a gigabyte; swallows bodies."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.left = 0
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self.left:
            self.left -= len(data)
        elif data.startswith(b"PUT"):
            self.left = BIG - len(data.partition(b"\r\n\r\n")[2])
        elif data.startswith(b"GET /big"):
            self.task = asyncio.ensure_future(self.big())
            return
        if self.left <= 0:
            self.left = 0
            self.transport.write(SMALL)

    async def big(self) -> None:
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BIG)
        for _ in range(BIG // 65_536):
            self.transport.write(bytes(65_536))
            await self.writable.wait()


def serve(listener: socket.socket) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(RawOrigin, sock=listener)
        await server.serve_forever()

    asyncio.run(run())


async def measure(name: str, total: int, parallel: int, one: Callable[[], Awaitable[Any]]) -> None:
    async def worker(count: int) -> None:
        for _ in range(count):
            await one()

    await asyncio.gather(*(worker(20) for _ in range(parallel)))
    begun, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker(total // parallel) for _ in range(parallel)))
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    print(f"| {name}, {parallel} at a time | {total / wall:,.0f} | {cpu / total * 1e6:.0f} |")


async def table(origin: Origin) -> None:
    upstream = UpstreamClient()
    head = RequestHead(b"GET", b"/", LINES)
    sender = Sender(peer="203.0.113.9", client="203.0.113.9", trusted=False, scheme="https")
    scope = {"type": "http", "extensions": {"corvus.server": {}}}

    async def client_alone() -> None:
        response = await upstream.request(origin, head)
        if not response.complete:
            await response.read()
        response.take()

    async def receive() -> dict[str, Any]:
        raise AssertionError

    async def send(_: dict[str, Any]) -> None:
        pass

    async def whole() -> None:
        await forward(
            scope=scope,
            receive=receive,
            send=send,
            origin=origin,
            head=origin_head(method=b"GET", target=b"/", headers=LINES, sender=sender),
            upstream=upstream,
        )

    print("| what | requests/s | µs CPU each |\n|---|---|---|")
    for parallel in (1, 32, 100):
        await measure("client alone", 20_000, parallel, client_alone)
        await measure("headers + client + forwarder", 20_000, parallel, whole)

    print("\n| 1 GiB | MB/s | s CPU | peak MB more |\n|---|---|---|---|")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, cpu = time.perf_counter(), time.process_time()
    response = await upstream.request(origin, RequestHead(b"GET", b"/big", LINES))
    while await response.read():
        pass
    peak = report("download", begun, cpu, peak)

    async def parts() -> Any:
        part = bytes(65_536)
        for _ in range(BIG // 65_536):
            yield part

    begun, cpu = time.perf_counter(), time.process_time()
    put = RequestHead(b"PUT", b"/", [*LINES, (b"content-length", b"%d" % BIG)], BIG)
    await (await upstream.request(origin, put, parts())).read()
    report("upload", begun, cpu, peak)
    await upstream.close()


def report(name: str, begun: float, cpu: float, before_kb: int) -> int:
    wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    more = (peak - before_kb) / 1024
    print(f"| {name} | {BIG / wall / 1e6:,.0f} | {cpu:.2f} | {more:.1f} |")
    return peak


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    process = multiprocessing.get_context("fork").Process(target=serve, args=(listener,))
    process.start()
    try:
        port = listener.getsockname()[1]
        asyncio.run(table(Origin(host="127.0.0.1", port=port)))
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
