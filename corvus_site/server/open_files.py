"""How many files this process may have open, and how many of them clients may take.

Every connection is one; systems start a process with 1,024 as a rule, which a few hundred silent
clients could use up, so that none was left to reach the site, the store or the disk with.
"""

from __future__ import annotations

import resource

MOST = 65_536
KEPT_AT_LEAST = 256  # more than are under way between being accepted and being counted


def connections_allowed() -> int:
    """Raise the limit as far as the system lets us; give the connections that clients may have.

    A quarter, at least `KEPT_AT_LEAST`, is kept back for the other side.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(MOST, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = MOST if soft == resource.RLIM_INFINITY else soft
    return max(1, files - max(KEPT_AT_LEAST, files // 4))
