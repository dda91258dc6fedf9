"""While there is no administrator, every address of the console leads to the first-run page."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from portal.queries import has_administrator


class FirstRun:
    """Redirects to the first-run page until the administrator is there."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        first_run = reverse("portal:first-run")
        if request.path_info in (first_run, reverse("portal:healthz")) or has_administrator():
            return self.get_response(request)
        return HttpResponseRedirect(first_run)
