"""The console's own pages: first run, health, and the way to the admin."""

from __future__ import annotations

from django.contrib.auth import login
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_safe

from portal import services
from portal.forms import FirstRunForm
from portal.queries import has_administrator


@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """Say that the console serves."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Lead to the admin."""
    return redirect("admin:index")


@sensitive_post_parameters("token", "password", "repeated")
@require_http_methods(["GET", "HEAD", "POST"])
def first_run(request: HttpRequest) -> HttpResponse:
    """Take the setup token and create the administrator, once."""
    if has_administrator():
        return redirect("admin:index")
    form = FirstRunForm(request.POST or None)
    status, headers = 200, dict[str, str]()
    if request.method == "POST":
        status = 400
        try:
            services.check_token(request.POST.get("token", ""))
            if form.is_valid():
                return _create(request, form)
        except services.TooManyAttempts as refusal:
            form.add_error("token", str(refusal))
            status, headers = 429, {"Retry-After": str(refusal.wait_s)}
        except services.TokenRefused as refusal:
            form.add_error("token", str(refusal))
            status = 403
    response = render(request, "portal/first_run.html", {"form": form}, status=status)
    for name, value in headers.items():
        response.headers[name] = value
    return response


def _create(request: HttpRequest, form: FirstRunForm) -> HttpResponse:
    user = services.create_first_administrator(
        token=form.cleaned_data["token"],
        username=form.cleaned_data["username"],
        password=form.cleaned_data["password"],
    )
    login(request, user)
    return redirect("admin:index")
