"""Ties a process to the one that started it, so that a killed supervisor leaves nothing behind.

Linux only (`prctl`); elsewhere it does nothing and only an orderly stop ends the children.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def tied_to(parent: int) -> Callable[[], None]:
    """Give the function that a child runs before `exec`: the kernel kills it when `parent` ends.

    The parent may have died between fork and the call; then the child ends here.
    """

    def tie() -> None:
        if _libc is None:
            return
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return tie
