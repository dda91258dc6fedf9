"""The rules of a proxy host in the console: shown in their order, and tried on a URL."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from proxy import queries, trial
from proxy.gateway.paths import BadHost, normal_host
from proxy.models import ProxyHost


class ShowsTiers(admin.ModelAdmin):  # type: ignore[type-arg]
    """Admin of proxy hosts whose page ends with the rules, and with the field that tries a URL."""

    def get_urls(self) -> list[URLPattern]:
        """Add the page of a tried URL."""
        view = self.admin_site.admin_view(self.tiers_view)
        own = path("<int:host_id>/tiers/", view, name="proxy_proxyhost_tiers")
        return [own, *super().get_urls()]

    def render_change_form(
        self,
        request: HttpRequest,
        context: dict[str, Any],
        add: bool = False,
        change: bool = False,
        form_url: str = "",
        obj: ProxyHost | None = None,
    ) -> HttpResponse:
        """Add the rules as they are saved, whatever the form holds."""
        if obj is not None and obj.pk:
            context |= _rules(obj.pk)
        return super().render_change_form(request, context, add, change, form_url, obj)

    def tiers_view(self, request: HttpRequest, host_id: int) -> HttpResponse:
        """Show what a host makes of one URL; `?url=` holds it."""
        host = self.get_object(request, str(host_id))
        if host is None:
            raise Http404
        if not self.has_view_permission(request, host):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            **_rules(host.pk),
            **_tried(request.GET.get("url", ""), host),
            "title": "Which tier is this URL?",
            "opts": self.model._meta,
            "original": host,
        }
        return TemplateResponse(request, "admin/proxy/tiers.html", context)


def _rules(host_id: int) -> dict[str, Any]:
    site = queries.site(host_id)
    return {
        "stages": trial.stages(site),
        "rooms_by_path": trial.rooms(site),
        "tiers_url": reverse("admin:proxy_proxyhost_tiers", args=[host_id]),
    }


def _tried(text: str, host: ProxyHost) -> dict[str, Any]:
    """Give the trial, or why there is none; a URL of another host names that host."""
    if not text.strip():
        return {}
    try:
        address = trial.read_address(text)
        name = normal_host(address.host.encode()) if address.host else ""
    except BadHost as error:
        return {"url": text, "url_error": f"“{text}” is not allowed: {error}."}
    except ValueError as error:
        return {"url": text, "url_error": str(error)}
    owner = queries.host_of(name) if name else host
    if owner is None:
        return {"url": text, "url_error": f"No host has the name {name}: visitors get 404."}
    if owner.pk != host.pk:
        return {"url": text, "other_name": name, "other_host": owner}
    return {"url": text, "trial": trial.try_path(address.path, queries.site(host.pk))}
