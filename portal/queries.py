"""What the console's pages read."""

from __future__ import annotations

from django.contrib.auth.models import User


def has_administrator() -> bool:
    """Tell whether anybody can administer Corvus."""
    return User.objects.filter(is_superuser=True, is_active=True).exists()
