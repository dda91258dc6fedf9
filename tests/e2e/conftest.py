"""Fixtures that start the whole product, or serve its waiting page to a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from queueing.page_builder import build_bundle
from queueing.pages import PageBundle
from tests.support.page_server import PageServer, page_server
from tests.support.product import Product
from tests.support.waiting_browser import Visit, chromium, visit

StartProduct = Callable[..., Product]


@pytest.fixture
def start_product(tmp_path: Path) -> Iterator[StartProduct]:
    """Start the product with settings of the test's own: `start_product(CORVUS_CAPACITY="1")`."""
    started: list[Product] = []

    def start(**environ: str) -> Product:
        started.append(Product(tmp_path / f"data{len(started)}", environ))
        return started[-1]

    yield start
    for product in started:
        product.end()


@pytest.fixture(scope="session")
def demo_product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """One product with the demo site for all tests that only look at it."""
    product = Product(tmp_path_factory.mktemp("product") / "data")
    yield product
    product.end()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for a file."""
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def bundle() -> PageBundle:
    """The pages as they are published."""
    return PageBundle.load(build_bundle())


@pytest.fixture
def server(bundle: PageBundle) -> Iterator[PageServer]:
    """Serve pages, and status answers that a test sets."""
    with page_server(bundle) as running:
        yield running


@pytest.fixture
def seen(browser: Browser, server: PageServer) -> Iterator[Visit]:
    """One open page."""
    with visit(browser, server) as opened:
        yield opened
