"""Visitors' pages at run time: a published bundle, filled in microseconds. No Django, no I/O.

`queueing.page_builder` makes the bundle at publish time; the gateway loads it and calls `render`.
"""

from __future__ import annotations

from queueing.pages.bundle import BundleError, PageBundle, RenderedPage
from queueing.pages.languages import choose_language
from queueing.pages.view import Eta, PageState, PageView, Skip

__all__ = [
    "BundleError",
    "Eta",
    "PageBundle",
    "PageState",
    "PageView",
    "RenderedPage",
    "Skip",
    "choose_language",
]
