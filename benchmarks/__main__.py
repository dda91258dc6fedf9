"""Every benchmark, one table after the other, each with the command that repeats it."""

from __future__ import annotations

import subprocess
import sys

ALL = (
    ("benchmarks.gateway", "--seconds", "6", "--rounds", "3"),
    ("benchmarks.store_calls",),
    ("benchmarks.tiers",),
    ("benchmarks.pools",),
    ("benchmarks.memory",),
    ("benchmarks.room_script",),
)


def main() -> int:
    """Run all; the exit status is the first failure's."""
    status = 0
    for module, *options in ALL:
        print(f"\n### `{' '.join(['python -m', module, *options])}`\n", flush=True)
        status = status or subprocess.run([sys.executable, "-m", module, *options]).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
