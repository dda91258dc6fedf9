"""How often a sign-in may be tried: by account and network, by network, by account.

Counted in the cache, so that every console process counts together, and before the password is
looked at, so that tries at the same moment do not pass. Nobody can lock an administrator out of a
network from which that account has signed in before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import structlog
from django.core.cache import cache

WINDOW_S = 300
MOST_OF_PAIR = 5  # tries of one account from one network in a window
MOST_OF_NETWORK = 20  # of all accounts from one network
MOST_OF_ACCOUNT = 50  # of one account from all networks where it has never signed in
KNOWN_S = 90 * 24 * 3600

_log = structlog.get_logger("corvus.sign_in")


@dataclass(frozen=True, slots=True)
class SignIn:
    """One account as it is tried from one network (an IPv4 address or an IPv6 /64)."""

    account: str
    network: str

    def may_try(self) -> bool:
        """Count a try; false when there have been too many."""
        limits = [(self._key("pair"), MOST_OF_PAIR), (self._key("network"), MOST_OF_NETWORK)]
        if not cache.get(self._key("known")):
            limits.append((self._key("account"), MOST_OF_ACCOUNT))
        counts = [(_count(key), most) for key, most in limits]
        if any(count == most + 1 for count, most in counts):
            _log.warning("too many sign-ins", network=self.network)
        return all(count <= most for count, most in counts)

    def succeeded(self) -> None:
        """Forget this pair's tries, and know the account here from now on."""
        cache.delete(self._key("pair"))
        cache.set(self._key("known"), 1, KNOWN_S)

    def _key(self, what: str) -> str:
        parts = {
            "pair": (self.account, self.network),
            "known": (self.account, self.network),
            "network": ("", self.network),
            "account": (self.account, ""),
        }[what]
        # a digest: names are of any length, and a mistyped one may be a password
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        return f"sign-in:{what}:{digest}"


def _count(key: str) -> int:
    """Count one up and give the count; 0 while the store is away (then there is no session)."""
    cache.add(key, 0, WINDOW_S)
    try:
        return cache.incr(key) or 0
    except ValueError:  # it ran out in between
        return 1
