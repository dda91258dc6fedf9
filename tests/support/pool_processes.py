"""Other gateway processes of a machine, as tests of its pools need them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from proxy.gateway.pools import Pools

DEADLINE_S = 20

# Does what the lines of its input say: `t <key> <most>`, `g <key>`, `close`.
HOLDER = """
import pathlib, sys
from proxy.gateway.pools import Pools
pools = Pools(pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    act, *words = line.split()
    if act == "t":
        print(pools.try_take(bytes.fromhex(words[0]), int(words[1])), flush=True)
    elif act == "g":
        print(pools.give_back(bytes.fromhex(words[0])), flush=True)
    else:
        pools.close()
        print("closed", flush=True)
"""


class Other:
    """Another gateway process of the machine."""

    def __init__(self, folder: Path, code: str = HOLDER, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, str(folder), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def told(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def takes(self, key: bytes, most: int) -> bool:
        self.tell(f"t {key.hex()} {most}")
        return self.told() == "True"

    def gives_back(self, key: bytes) -> None:
        self.tell(f"g {key.hex()}")
        assert self.told() == "None"

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        return self.process.wait(DEADLINE_S)


def until_taken(pools: Pools, key: bytes, most: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not pools.try_take(key, most):
        assert time.monotonic() < deadline
