"""First run: the setup token, and the one administrator that it makes."""

from __future__ import annotations

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction

from portal.queries import has_administrator
from portal.setup_token import Attempts, SetupToken

attempts = Attempts()

_log = structlog.get_logger("corvus.first_run")


class TokenRefused(ValueError):
    """The setup token is not the right one, or has been used."""


class TooManyAttempts(TokenRefused):
    """Too many wrong tokens of late; `wait_s` seconds until the next try."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"Too many wrong tokens. Try again in {wait_s} s.")
        self.wait_s = wait_s


def _token() -> SetupToken:
    return SetupToken(settings.DATA_DIR, settings.SETUP_TOKEN)


def ensure_setup_token() -> str | None:
    """Make the setup token good while there is no administrator, and give it; else remove it.

    Called at each start, and a generated token is new each time: only its hash is kept. With
    `CORVUS_SETUP_TOKEN` the operator knows it, so None is given.

    Raises:
        OSError: the data folder cannot be written.
    """
    if has_administrator():
        _token().use_up()
        return None
    token = _token().issue()
    return None if settings.SETUP_TOKEN else token


def check_token(token: str) -> None:
    """Let the right token through.

    Raises:
        TooManyAttempts: whatever the token is.
        TokenRefused: it is wrong, or there is none any more.
    """
    if wait_s := attempts.wait_s():
        raise TooManyAttempts(wait_s)
    if not _token().matches(token):
        attempts.failed()
        _log.warning("wrong setup token")
        raise TokenRefused("This is not the setup token. It was printed when Corvus started.")


def create_first_administrator(*, token: str, username: str, password: str) -> User:
    """Create the administrator and use the token up, both or neither.

    Raises:
        TokenRefused: the token is wrong, used, or there is an administrator already.
    """
    check_token(token)
    with transaction.atomic():
        if has_administrator() or not _token().use_up():
            raise TokenRefused("Corvus has an administrator already: sign in.")
        user: User = User.objects.create_superuser(username=username, password=password)
    _log.warning("administrator created", username=username)
    return user
