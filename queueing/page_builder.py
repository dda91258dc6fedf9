"""Makes the page bundle at publish time: templates and catalogues in, one JSON document out.

The only part of the visitors' pages that needs Django. The same sources give the same bytes, so the
digest changes only when a page does.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

from babel import Locale
from django.conf import settings
from django.template import Context, Engine
from django.utils.translation import override
from django.utils.translation.reloader import translation_file_changed

from queueing import page_words
from queueing.catalogues import LOCALE, ensure_catalogues
from queueing.pages.bundle import FORMAT

TEMPLATES = LOCALE.parent / "templates"
LANGUAGES = ("en", "de", "fr", "es", "ja", "ar")
FORMATTED_AS = {"ar": "ar_EG"}
"""Whose digits a language without region gets; `ar` alone has no digits that most readers
expect.
"""
MIN_GROUP = {"es": 2}
"""CLDR minimumGroupingDigits, which Babel does not carry: 1234 but 12.345."""
JOINS = {"fr": "{0} et {1}", "es": "{0} y {1}", "ja": "{0} {1}", "ar": "{0} و{1}"}
"""CLDR listPattern-type-unit for two parts, where Babel has none."""


class PageBuildError(RuntimeError):
    """The pages cannot be built; the message names what is missing."""


def build_bundle(languages: Iterable[str] = LANGUAGES) -> bytes:
    """Render every page in every language.

    Raises:
        PageBuildError: Django does not know the catalogues' folder.
        OSError: a catalogue cannot be compiled.
    """
    if LOCALE not in {Path(p).resolve() for p in settings.LOCALE_PATHS}:
        raise PageBuildError(f"LOCALE_PATHS must hold {LOCALE}: the pages' words are there.")
    ensure_catalogues(LOCALE)
    _read_anew(tuple((str(p), p.stat().st_mtime_ns) for p in sorted(LOCALE.rglob("*.mo"))))
    codes = tuple(languages)
    css = squeeze_css((TEMPLATES / "waiting/page.css").read_text("utf-8"))
    js, repost, helper = (
        squeeze_js((TEMPLATES / "waiting" / name).read_text("utf-8"))
        for name in ("page.js", "repost.js", "helper.js")
    )
    names = {code: _own_name(code) for code in codes}
    document = {
        "format": FORMAT,
        "css": css,
        "js": js,
        "style_hash": csp_hash(css),
        "script_hash": csp_hash(js),
        "repost": repost,
        "repost_hash": csp_hash(repost),
        "helper": helper,
        "languages": {code: _language(code, names) for code in codes},
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


@lru_cache(maxsize=1)
def _read_anew(stamps: tuple[tuple[str, int], ...]) -> None:
    # Django keeps what it found when it first used a language, also that there was no catalogue.
    # Whoever compiled since (this process or another), the words must be read again.
    for path, _ in stamps[:1]:
        translation_file_changed(sender=None, file_path=Path(path))


def csp_hash(text: str) -> str:
    """Give the hash source of an inline part (CSP 3, 6.7.3.3)."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def squeeze_css(text: str) -> str:
    """Leave out comments and needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([{};,>]) ?", r"\1", text).replace(": ", ":").strip()


def squeeze_js(text: str) -> str:
    """Leave out indentation and lines that are only a `//` comment; nothing cleverer."""
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def _language(code: str, names: dict[str, str]) -> dict[str, Any]:
    with override(code):
        states = {
            **page_words.line_states(),
            **page_words.closed_states(),
            **page_words.error_states(),
        }
        live, labels = dict(page_words.live_words()), dict(page_words.labels())
        script_only = dict(page_words.script_words())
        price = dict(page_words.price_words())
        helper_words = dict(page_words.helper_words())
        plurals = {
            key: {category: say(n) for category, n in _representatives(code).items()}
            for key, say in page_words.plurals().items()
        }
        locale = _locale_data(code)
        context = {
            "code": code,
            "dir": locale["dir"],
            "names": names,
            "t": labels,
            "live": live,
            "said": script_only,
            "price": price,
        }
        engine = Engine(dirs=[str(TEMPLATES)], autoescape=True)
        pages = {
            page: _tidy(engine.get_template(f"waiting/{page}.html").render(Context(context)))
            for page in ("live", "notice", "repost")
        }
    script = {
        "tag": locale["tag"],
        "units": {k: locale["units"][k] for k in ("second", "minute", "hour")},
        "join": locale["join"],
        "ahead": plurals["ahead"],
        "states": {state: states[state] for state in page_words.line_states()},
        **{k: v for k, v in live.items() if k not in ("again", "opens", "every")},
        **{f"say_{k}": v for k, v in script_only.items()},
    }
    return {
        "locale": locale,
        "pages": pages,
        "states": states,
        "words": live,
        "plurals": plurals,
        "script": json.dumps(script, ensure_ascii=False, separators=(",", ":")),
        "price": price,
        "helper": json.dumps(
            helper_words | {"lang": locale["tag"]},
            ensure_ascii=False,
            separators=(",", ":"),
        ),
    }


def _tidy(html: str) -> str:
    return "\n".join(line.strip() for line in html.splitlines() if line.strip())


def _own_name(code: str) -> str:
    return str(Locale.parse(code).get_display_name(code)).capitalize()


def _representatives(code: str) -> dict[str, int]:
    """Give one number for each of the language's plural categories (CLDR), so that gettext is
    asked once each.
    """
    rule = Locale.parse(code).plural_form
    found: dict[str, int] = {}
    for n in (*range(1, 201), 0, 1_000_000):
        found.setdefault(rule(n), n)
    return dict(sorted(found.items()))


def _locale_data(code: str) -> dict[str, Any]:
    locale = Locale.parse(FORMATTED_AS.get(code, code))
    system = locale.default_numbering_system
    digits = "٠١٢٣٤٥٦٧٨٩" if system == "arab" else "0123456789"
    units: Any = locale.unit_display_names and locale._data["unit_patterns"]
    return {
        "tag": str(locale).replace("_", "-"),
        "dir": locale.text_direction,
        "name": _own_name(code),
        "digits": digits,
        "group": locale.number_symbols[system]["group"],
        "min_group": MIN_GROUP.get(code, 1),
        "units": {
            unit: {
                k: v
                for k, v in sorted(units[f"duration-{unit}"]["long"].items())
                if k in (*locale.plural_form.tags, "other")
            }
            for unit in ("second", "minute", "hour")
        },
        "join": JOINS.get(code, "{0}, {1}"),
    }
