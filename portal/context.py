"""What every page of the console shows besides its own content."""

from __future__ import annotations

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from proxy import queries


def delivery(request: HttpRequest) -> dict[str, object]:
    """Tell whether gateways still run an older configuration; asked only where it is shown."""
    return {"store_is_behind": SimpleLazyObject(queries.is_behind)}
