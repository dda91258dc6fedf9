"""The whole product, started as an operator starts it, on free ports with a folder of its own."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import httpx

from tests.support.running import Running, eventually

FREE = "127.0.0.1:0"
NAVIGATION = {
    "Accept": "text/html,*/*;q=0.8",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}


class Product:
    """A running `manage.py up`: `site`, `console` and `demo` are addresses without a last slash."""

    def __init__(self, data_dir: Path, environ: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.environ = {
            "CORVUS_DATA_DIR": str(data_dir),
            "CORVUS_LISTEN": FREE,
            "CORVUS_CONSOLE_LISTEN": FREE,
            "CORVUS_DEMO_LISTEN": FREE,
            "CORVUS_GATEWAYS": "2",
            **(environ or {}),
        }
        self._start()

    def _start(self) -> None:
        self.running = Running(["manage.py", "up"], self.environ)
        try:
            self.running.line("ready after", within_s=120)
        except BaseException:
            self.running.end()
            raise
        self.site = self._address("site")
        self.console = self._address("console")
        has_demo = not self.environ.get("CORVUS_UPSTREAM")
        self.demo = self._address("demo") if has_demo else ""

    def _address(self, name: str) -> str:
        return self.running.line(rf"^{name}\s+(https?://\S+?)/(\s|$)")[1]

    @property
    def setup_token(self) -> str:
        """The token of the first run; "" when none was printed."""
        found = (re.fullmatch(r"setup_token=(\S+)", line) for line in self.running.lines)
        return next((match[1] for match in found if match), "")

    def visitor(self) -> httpx.Client:
        """Give a new visitor: a client with cookies of its own that navigates like a browser."""
        return httpx.Client(
            base_url=self.site, headers=NAVIGATION, follow_redirects=True, timeout=20
        )

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal and start it again at the same addresses."""
        self.running.send(number)
        self.running.process.wait(60)
        eventually(lambda: not self.running.left(), what="everything has ended")
        for name, address in (("", self.site), ("CONSOLE_", self.console), ("DEMO_", self.demo)):
            if address:
                self.environ[f"CORVUS_{name}LISTEN"] = address.partition("://")[2]
        self.running.end()
        self._start()

    def stop(self) -> int:
        """End it in order; give the exit status."""
        self.running.send(signal.SIGTERM)
        return self.running.wait(60)[0]

    def end(self) -> None:
        """Leave nothing behind, however the test went."""
        self.running.end()
