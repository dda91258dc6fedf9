"""An address that fails, to see what the console shows then."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("secret detail")


urlpatterns = [path("broken", broken), path("", include("corvus_site.urls"))]
