"""Django middleware that tells Corvus the rank of a visitor. Copy it into your project.

In your settings, after the session and authentication middleware:

    MIDDLEWARE = [..., "yourproject.corvus_priority.CorvusPriorityMiddleware"]
    CORVUS_RANK_OF = "yourproject.ranks.rank_of"

`rank_of` takes the request, after your view has run, and gives the rank of who made it, or None:

    def rank_of(request):
        if request.user.is_staff:
            return "staff"
        return "customer" if request.user.is_authenticated else None

A rank is one of guest, member, prospect, customer, subscriber, checkout, staff; a lifetime of its
own follows as in "checkout; ttl=45m". Needs Django 4.2 or later, and the session middleware to
notice when a visitor has no rank any more. It depends on nothing of Corvus.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase
from django.utils.module_loading import import_string

logger = logging.getLogger(__name__)

HEADER = "Corvus-Priority"
RANKS = ("guest", "member", "prospect", "customer", "subscriber", "checkout", "staff")
REMEMBERED = "corvus_rank"
"""The session's entry that says which rank was told last."""


class CorvusPriorityMiddleware:
    """Sends the header for ranked visitors, and "guest" once when a visitor has lost the rank."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response
        name = getattr(settings, "CORVUS_RANK_OF", "")
        if not name:
            raise ImproperlyConfigured(
                "CORVUS_RANK_OF must name your function, as in 'a.b.rank_of'."
            )
        self.rank_of: Callable[[HttpRequest], str | None] = import_string(name)

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # Before the view: signing out empties the session.
        told = self._remembered(request)
        response = self.get_response(request)
        rank = (self.rank_of(request) or "guest").strip()
        name = rank.partition(";")[0].strip().lower()
        if name not in RANKS:
            logger.error("CORVUS_RANK_OF gave %r; use None or one of %s", rank, ", ".join(RANKS))
        elif name != "guest":
            response[HEADER] = rank
            if told != name:
                request.session[REMEMBERED] = name
        elif told:
            response[HEADER] = name
            request.session.pop(REMEMBERED, None)
        return response

    def _remembered(self, request: HttpRequest) -> str:
        if settings.SESSION_COOKIE_NAME not in request.COOKIES:
            return ""  # nobody we know; the answer stays the same for all, so it can be cached
        return str(request.session.get(REMEMBERED, ""))
