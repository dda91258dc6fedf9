"""Publishing in tests: the real store of the run, as the console uses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.valkey import Valkey


@pytest.fixture
def store(settings: Any, valkey: Valkey) -> Any:
    """Point the console at the run's Valkey; give a client to look inside."""
    settings.STORE_URL = valkey.url
    return valkey.client


@pytest.fixture
def no_store(settings: Any, tmp_path: Path) -> None:
    """Point the console at a store that is not there."""
    settings.STORE_URL = f"unix://{tmp_path}/nothing.sock"
