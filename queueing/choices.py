"""What a room's choices are called in the console."""

from __future__ import annotations

from queueing.config import NO_RANK, RANKS, InsideNow, Mode, OnOutage, Order, Unit

SHORT_MODES = {
    Mode.OPEN: "Open",
    Mode.PAUSED: "Paused",
    Mode.CLOSED: "Closed",
    Mode.REJECT: "Rejecting",
    Mode.OFF: "Off",
}
MODES = {
    Mode.OPEN: "Open: people are let in as slots are free",
    Mode.PAUSED: "Paused: nobody is let in; numbers are kept and newcomers join the line",
    Mode.CLOSED: "Closed: newcomers are told so; the line is served",
    Mode.REJECT: "Rejecting: nobody new is let in or queued; places are kept",
    Mode.OFF: "Off: no limit any more; the line is let in under the rate",
}
UNITS = {
    Unit.VISITORS: "Visitors: people hold a slot while they keep coming back",
    Unit.REQUESTS: "Requests: a page holds a slot while the site works on it",
}
ON_OUTAGE = {
    OnOutage.CLOSED: "Closed: newcomers see “try again later”; people inside stay inside",
    OnOutage.OPEN: "Open: newcomers are let in, at most the number below a second",
}
INSIDE_NOW = {
    InsideNow.KEEP: (
        "Keep: whoever the site knows by its session cookie stays inside and is counted"
    ),
    InsideNow.QUEUE: "Queue: everybody asks for a slot like a newcomer",
}
ORDERS = {
    Order.ARRIVAL: "Arrival: who came first is next",
    Order.RANK: "Rank: who has the higher rank is next, within the share below",
}
LANE_RANKS = {
    **{rank: name.capitalize() for rank, name in enumerate(RANKS) if rank},
    NO_RANK: "Nobody",
}
