"""The console's ASGI application: Django, with room for Channels' live pages."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any

from channels.routing import ProtocolTypeRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "corvus_site.settings")


async def refuse(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Close a WebSocket that no page of the console opens."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


application = ProtocolTypeRouter(
    {
        "http": get_asgi_application(),
        "websocket": AllowedHostsOriginValidator(refuse),
    }
)
