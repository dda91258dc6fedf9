"""`manage.py up` without Django: prepare the product's plan, run it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence

from corvus_site.env import BadSetting
from corvus_site.supervisor import launch
from corvus_site.supervisor.say import Speaker
from corvus_site.supervisor.supervising import supervise


def main(arguments: Sequence[str]) -> int:
    """Run `manage.py up`; give 0 for an orderly stop, 1 for a failed start, 2 for a bad setting."""
    speaker = Speaker(sys.stdout)
    try:
        with contextlib.closing(launch.prepare(arguments, speaker)) as prepared:
            return asyncio.run(supervise(prepared.plan, speaker))
    except BadSetting as bad:
        sys.stderr.write(f"error: {bad}\n")
        return 2
    finally:
        speaker.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
