"""How much the demo shop bears: pure, the clock is an argument.

A shopper is a session that was seen in the last `MEMORY_S`. Up to the limit pages come at once;
beyond, each further shopper slows everyone down; at twice the limit the shop falls over, and
answers 503 until it has no more shoppers than it bears.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

MEMORY_S = 15.0
EASY_S = 0.03
SLOWEST_S = 4.0


class Mood(StrEnum):
    """How the shop is."""

    EASY = "at ease"
    SLOW = "struggling"
    DOWN = "fallen over"


@dataclass(slots=True)
class Shop:
    """The shop's load. `limit` is how many shoppers, or pages at once, it bears."""

    limit: int
    working: int = 0  # pages being made at this moment
    down: bool = False
    _seen: dict[str, float] = field(default_factory=dict)

    def visit(self, session: str, now: float) -> None:
        """Remember a sign of life of a session; an empty one is somebody unknown."""
        if session:
            self._seen[session] = now

    def shoppers(self, now: float) -> int:
        """Count the people who were here lately, or the pages being made, whichever is more."""
        for session in [s for s, at in self._seen.items() if now - at > MEMORY_S]:
            del self._seen[session]
        return max(len(self._seen), self.working)

    def mood(self, now: float) -> Mood:
        """Tell how it is, after falling over or getting up as the load demands."""
        shoppers = self.shoppers(now)
        if shoppers >= 2 * self.limit:
            self.down = True
        elif shoppers <= self.limit:
            self.down = False
        if self.down:
            return Mood.DOWN
        return Mood.SLOW if shoppers > self.limit else Mood.EASY

    def delay_s(self, now: float) -> float:
        """Give how long a page takes at the moment."""
        over = min(1.0, max(0.0, self.shoppers(now) / self.limit - 1))
        return EASY_S + (SLOWEST_S - EASY_S) * over**2
