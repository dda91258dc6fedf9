"""Proxy hosts, settings, published versions and signing keys in the console."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from proxy import queries, services
from proxy.admin_tiers import ShowsTiers
from proxy.forms import ProxyHostForm, SettingsForm
from proxy.gateway.conflicts import LABELS
from proxy.gateway.tiers import LISTS
from proxy.models import ConfigVersion, KeyGeneration, ProxyHost, RoomBinding, SavedSetting
from queueing.refusals import ShowsRefusals


class RoomBindingInline(admin.TabularInline):  # type: ignore[type-arg]
    """A host's rooms by path."""

    model = RoomBinding
    autocomplete_fields = ["room"]
    extra = 0
    verbose_name = "room"
    verbose_name_plural = "rooms by path"

    def get_queryset(self, request: HttpRequest) -> Any:
        """Fetch the host with each rule, which names it."""
        return super().get_queryset(request).select_related("host")


@admin.register(ProxyHost)
class ProxyHostAdmin(ShowsTiers, ShowsRefusals):
    """Hosts: names, origin, rooms."""

    form = ProxyHostForm
    inlines = [RoomBindingInline]
    list_display = ["label", "all_names", "origin"]
    search_fields = ["label", "origin", "names__name"]
    show_full_result_count = False
    fieldsets = [
        (None, {"fields": ["label", "host_names", "origin"]}),
        ("Forwarding", {"fields": ["preserve_host", "verify_origin", "path_case"]}),
        (
            "Paths",
            {
                "fields": list(LABELS),
                "description": "All other paths are pages. A path belongs to one list. Where a list"
                " cannot be edited here, as with the host *, it is among the settings.",
            },
        ),
        ("Visitors", {"fields": ["allowed_origins", "session_cookie"]}),
    ]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Say what a host is."""
        lead = "A host is one site, the names that lead to it, and the rooms before its paths."
        return super().changelist_view(request, {**(extra_context or {}), "lead": lead})

    def get_queryset(self, request: HttpRequest) -> Any:
        """Fetch the names with the hosts."""
        return super().get_queryset(request).prefetch_related("names")

    @admin.display(description="names")
    def all_names(self, host: ProxyHost) -> str:
        """Show every name."""
        return ", ".join(n.name for n in host.names.all())

    def get_readonly_fields(self, request: HttpRequest, obj: ProxyHost | None = None) -> list[str]:
        """Keep what the settings say of the catch-all: it is changed on the settings page."""
        return ["origin", "preserve_host", *LISTS] if obj and obj.catch_all else []

    def has_delete_permission(self, request: HttpRequest, obj: ProxyHost | None = None) -> bool:
        """Keep the catch-all."""
        return not (obj and obj.catch_all) and super().has_delete_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: ProxyHost, form: Any, change: bool) -> None:
        """Wait: host, names and rooms are one act, see `save_related`."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Write host, names and rooms through the service, and publish once."""
        rules = [
            services.Rule(row["path"], row["room"].pk)
            for formset in formsets
            for row in formset.cleaned_data
            if row and not row.get("DELETE")
        ]
        services.save_host(
            host=form.instance,
            names=form.cleaned_data["host_names"],
            rules=rules,
            author=request.user.get_username(),
        )
        for formset in formsets:
            formset.new_objects, formset.changed_objects, formset.deleted_objects = [], [], []

    def delete_model(self, request: HttpRequest, obj: ProxyHost) -> None:
        """Delete through the service."""
        services.remove_host(host=obj, author=request.user.get_username())

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        """Delete through the service, one by one; the catch-all stays."""
        for host in queryset.filter(catch_all=False):
            self.delete_model(request, host)


class ReadOnly(admin.ModelAdmin):  # type: ignore[type-arg]
    """What is looked at and never edited."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never."""
        return False


@admin.register(SavedSetting)
class SettingsAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The settings page: every setting with value, source, bounds and help; all or nothing."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Settings are not added, only changed."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Giving a setting back is a choice on the page."""
        return False

    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Lead to the one page."""
        return HttpResponseRedirect(reverse("admin:proxy_savedsetting_changelist"))

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the page, or save what was changed on it."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        posted = request.method == "POST"
        if posted and not self.has_change_permission(request):
            raise PermissionDenied
        form = SettingsForm(
            queries.effective(), queries.saved_settings(), request.POST if posted else None
        )
        if posted and form.is_valid() and self._saved(request, form):
            return HttpResponseRedirect(request.path)
        context = {
            **self.admin_site.each_context(request),
            "title": "Settings",
            "form": form,
            "groups": list(form.groups()),
            "opts": self.model._meta,
            "can_save": self.has_change_permission(request),
        }
        status = 400 if posted else 200
        return TemplateResponse(request, "admin/proxy/settings.html", context, status=status)

    def _saved(self, request: HttpRequest, form: SettingsForm) -> bool:
        try:
            changed = services.save_settings(
                values=form.wishes(), author=request.user.get_username()
            )
        except services.SettingsRefused as refusal:
            for name, texts in refusal.message_dict.items():
                for text in texts:
                    form.add_error(name if name in form.fields else None, text)
            return False
        if changed:
            text = f"Saved {', '.join(sorted(changed))}."
            self.log_change(request, SavedSetting(name="Settings"), text)
            self.message_user(request, f"Saved: {', '.join(sorted(changed))}.", messages.SUCCESS)
        else:
            self.message_user(request, "Nothing was changed.", messages.INFO)
        return True


@admin.register(ConfigVersion)
class ConfigVersionAdmin(ReadOnly):
    """What was published, by whom, and when the store had it."""

    list_display = ["number", "created_at", "author", "note", "delivered_at"]
    date_hierarchy = "created_at"
    search_fields = ["author", "note"]
    show_full_result_count = False
    fields = ["number", "created_at", "delivered_at", "author", "note", "digest", "readable"]

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Say what a version is."""
        lead = "Every change makes a version. Gateways run the newest that the store has."
        return super().changelist_view(request, {**(extra_context or {}), "lead": lead})

    @admin.display(description="document")
    def readable(self, version: ConfigVersion) -> str:
        """Show the document with indentation."""
        text = json.dumps(json.loads(version.document), indent=2, ensure_ascii=False)
        return format_html('<pre class="corvus-document">{}</pre>', text)


@admin.register(KeyGeneration)
class KeyGenerationAdmin(ReadOnly):
    """Generations of signing keys, and the button that begins the next."""

    list_display = ["number", "rotated_at", "author"]
    change_list_template = "admin/proxy/keys.html"

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Say which key signs."""
        lead = (
            f"Generation {queries.key_generation()} signs passes and tickets; it and the one before"
            " are believed. Each rotation adds a row."
        )
        return super().changelist_view(request, {**(extra_context or {}), "lead": lead})

    def get_urls(self) -> list[URLPattern]:
        """Add the rotation."""
        own = path(
            "rotate/", self.admin_site.admin_view(self.rotate_view), name="proxy_rotate_secret"
        )
        return [own, *super().get_urls()]

    def rotate_view(self, request: HttpRequest) -> HttpResponse:
        """Ask, then rotate; a rotation that would hurt living passes is refused unless forced."""
        if not request.user.has_perm("proxy.add_keygeneration"):
            raise PermissionDenied
        back = reverse("admin:proxy_keygeneration_changelist")
        if request.method == "POST":
            try:
                number = services.rotate_secret(
                    author=request.user.get_username(), force=request.POST.get("force") == "yes"
                )
            except services.TooSoon as refusal:
                messages.error(request, str(refusal))
            else:
                made = self.get_queryset(request).get(number=number)
                self.log_addition(request, made, "Signing keys rotated")
                messages.success(request, f"Generation {number} signs now.")
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "title": "Rotate the signing keys",
            "opts": self.model._meta,
        }
        return TemplateResponse(request, "admin/proxy/rotate.html", context)
