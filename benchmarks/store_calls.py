"""How often an admitted visitor costs the store a call.

Run: `python -m benchmarks.store_calls [--seconds 40]`. One visitor browses at 20 requests a second;
the gateway counts which of them were let through by the pass alone.
"""

from __future__ import annotations

import argparse
import time

from benchmarks.rig import NginxOrigin, gateway_before


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=40)
    seconds = parser.parse_args().seconds
    with gateway_before(NginxOrigin()) as world, world.one.api() as visitor:
        room = world.room(capacity=10)
        world.publish(room)
        visitor.get("/")
        visitor.get("/")
        started, requests, renewed = time.monotonic(), 0, 0
        while time.monotonic() - started < seconds:
            answer = visitor.get("/")
            assert answer.status_code == 200
            requests += 1
            renewed += "set-cookie" in answer.headers
            time.sleep(0.05)
        fast = world.stats()["rooms"][room.id]["counters"]["fast"]
    print("| what | figure |")
    print("|---|---|")
    print(f"| requests of one admitted visitor | {requests} in {seconds} s |")
    print(f"| let through by the pass alone (0 store calls) | {fast} |")
    print(f"| store calls per visitor and minute | {(requests - fast) * 60 / seconds:.1f} |")
    print(f"| passes renewed | {renewed} |")


if __name__ == "__main__":
    main()
