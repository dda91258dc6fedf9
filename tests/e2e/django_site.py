"""A small Django site that ranks its visitors with the helper of the documentation.

Run as a program: `python django_site.py PORT`. `/account?as=customer` signs in with a rank,
`?as=` signs out, `?hold=1` makes the file SITE_HOLD and goes on when that is gone.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.urls import path

ROOT = Path(__file__).resolve().parents[2]


def rank_of(request: HttpRequest) -> str | None:
    """Give the rank that the visitor signed in with."""
    return request.session.get("rank")


def account(request: HttpRequest) -> JsonResponse:
    """Sign in or out, and tell what came in."""
    if "hold" in request.GET:
        held, until = Path(os.environ["SITE_HOLD"]), time.monotonic() + 20
        held.touch()
        while held.exists() and time.monotonic() < until:
            time.sleep(0.01)
    if request.GET.get("as"):
        request.session["rank"] = request.GET["as"]
    elif "as" in request.GET:
        request.session.flush()
    return JsonResponse(
        {
            "rank": request.session.get("rank"),
            "cookies": sorted(request.COOKIES),
            "told": request.headers.get("Corvus-Priority"),
        }
    )


urlpatterns = [path("account", account)]


class Server(ThreadingMixIn, WSGIServer):
    """One thread for each request."""

    daemon_threads = True
    request_queue_size = 128


class Quiet(WSGIRequestHandler):
    """Writes no log."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until killed."""
    sys.path.insert(0, str(ROOT / "docs" / "helpers"))
    settings.configure(
        SECRET_KEY="of a test site",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="__main__",
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "corvus_priority.CorvusPriorityMiddleware",
        ],
        SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
        CORVUS_RANK_OF="__main__.rank_of",
    )
    import django
    from django.core.wsgi import get_wsgi_application

    django.setup()
    server = Server(("127.0.0.1", int(sys.argv[1])), Quiet)
    server.set_app(get_wsgi_application())
    server.serve_forever()


if __name__ == "__main__":
    main()
