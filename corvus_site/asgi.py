"""The console's ASGI application: Django, with room for Channels' live pages."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from channels.routing import ProtocolTypeRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "corvus_site.settings")

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[Any], Awaitable[None]]

_django = get_asgi_application()


async def pages(scope: Scope, receive: Receive, send: Send) -> None:
    """Give a request to Django, which ends one that its client has left by itself.

    Cancelled from outside as well, it would forget the two tasks that it made for the request, and
    asyncio would report each as an error that nobody had looked at.
    """
    handling = asyncio.ensure_future(_django(scope, receive, send))
    try:
        await asyncio.shield(handling)
    except asyncio.CancelledError:
        await asyncio.wait({handling})
        raise


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Close a WebSocket that no page of the console opens."""
    await receive()
    await send({"type": "websocket.close", "code": 4404})


application = ProtocolTypeRouter(
    {
        "http": pages,
        "websocket": AllowedHostsOriginValidator(refuse),
    }
)
