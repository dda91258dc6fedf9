"""The product's settings in a test process: the operator's environment and data stay out of it.

Whatever a test starts as a process of its own gets the product's own settings module, and no
variable of the operator either.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

for _name in [n for n in os.environ if n.startswith("CORVUS_") or n == "DATABASE_URL"]:
    del os.environ[_name]
os.environ["CORVUS_DATA_DIR"] = tempfile.mkdtemp(prefix="corvus-tests-")
os.environ["CORVUS_SECRET"] = "a secret for tests alone, of 45 characters …"
atexit.register(shutil.rmtree, os.environ["CORVUS_DATA_DIR"], ignore_errors=True)

from corvus_site.settings import *  # noqa: E402, F403

os.environ["DJANGO_SETTINGS_MODULE"] = "corvus_site.settings"
for _name in ("CORVUS_DATA_DIR", "CORVUS_SECRET"):
    del os.environ[_name]

# Passwords of tests need no cost.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORE_URL = f"unix://{Path(tempfile.gettempdir(), 'corvus-no-store.sock')}"
