"""Proxy hosts as a Django app: it listens to rooms and publishes."""

from __future__ import annotations

from django.apps import AppConfig


class ProxyConfig(AppConfig):
    """Proxy hosts, saved settings, published versions."""

    name = "proxy"
    verbose_name = "Gateway"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Publish whenever a room is saved or removed."""
        from proxy import services
        from queueing.services import room_changed, room_removed

        room_changed.connect(services.on_room_changed, dispatch_uid="proxy.publish")
        room_removed.connect(services.on_room_removed, dispatch_uid="proxy.publish")
