"""Fixtures that start the whole product."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.product import Product

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
