"""Publishing: catalogues complete, bundles deterministic, no word outside the catalogues."""

from __future__ import annotations

import gzip
import html
import json
import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from babel.messages.extract import extract_from_file
from babel.messages.pofile import read_po
from django.utils.translation import gettext, override

from queueing import page_builder, page_words
from queueing.catalogues import LOCALE, ensure_catalogues
from queueing.page_builder import LANGUAGES, PageBuildError, build_bundle
from queueing.pages import PageBundle, PageState
from tests.support.page_server import waiting_view
from tests.support.pseudo_words import pseudo, pseudo_words

MAX_BUNDLE = 400_000


def source_messages() -> set[str | tuple[str, ...]]:
    return {
        message for _, message, _, _ in extract_from_file("python", page_words.__file__) if message
    }


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_translated_and_keeps_its_holes(language: str) -> None:
    path = LOCALE / language / "LC_MESSAGES" / "django.po"
    with path.open("rb") as stream:
        catalogue = read_po(stream, locale=language, abort_invalid=True)
    messages = {m.id: m for m in catalogue if m.id}
    assert set(messages) == source_messages()
    assert not [m.id for m in catalogue if m.fuzzy and m.id]
    for message in messages.values():
        ids = message.id if isinstance(message.id, tuple) else (message.id,)
        texts = message.string if isinstance(message.string, tuple) else (message.string,)
        assert all(texts), message.id
        holes = set(re.findall(r"\{.*?\}", ids[-1]))
        for text in texts:
            found = set(re.findall(r"\{.*?\}", text))
            # “one person” needs no numeral in some languages
            assert found == holes or (len(texts) > 1 and found < holes), text


@pytest.mark.parametrize("language", [x for x in LANGUAGES if x != "en"])
def test_no_sentence_was_left_in_english(language: str) -> None:
    with (LOCALE / language / "LC_MESSAGES" / "django.po").open("rb") as stream:
        catalogue = read_po(stream, locale=language)
    same = {m.id for m in catalogue if m.id and m.id == m.string and "{" not in str(m.id)}
    assert same <= {"Error"}


def test_the_same_sources_give_the_same_bytes_and_a_small_bundle() -> None:
    raw = build_bundle()
    assert raw == build_bundle()
    assert len(raw) <= MAX_BUNDLE
    bundle = PageBundle.load(raw)
    assert bundle.languages == LANGUAGES
    assert re.fullmatch("[0-9a-f]{20}", bundle.digest)
    assert json.loads(raw)["css"].count("color-scheme") >= 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_wr_50_the_helper_script_has_its_words_and_stays_under_two_kilobytes(language: str) -> None:
    script = PageBundle.load(build_bundle()).helper(language)
    assert len(gzip.compress(script, 9)) <= 2_048
    assert "⟪" not in script.decode()
    with override(language):
        assert page_words.helper_words()["ends"] in script.decode()
    # A site's policy may forbid what is not set through CSSOM.
    assert not re.search(r"innerHTML|setAttribute|cssText|<style|eval|Function", script.decode())


def test_without_the_catalogues_folder_in_the_settings_the_error_names_it(settings: Any) -> None:
    settings.LOCALE_PATHS = []
    with pytest.raises(PageBuildError, match="LOCALE_PATHS must hold"):
        build_bundle()


def test_catalogues_are_compiled_when_missing_or_older_and_else_left_alone(tmp_path: Path) -> None:
    shutil.copytree(LOCALE, tmp_path / "locale", ignore=shutil.ignore_patterns("*.mo"))
    written = ensure_catalogues(tmp_path / "locale")
    assert {p.parent.parent.name for p in written} == set(LANGUAGES)
    assert ensure_catalogues(tmp_path / "locale") == []
    source = tmp_path / "locale" / "de" / "LC_MESSAGES" / "django.po"
    later = source.with_suffix(".mo").stat().st_mtime + 5
    os.utime(source, (later, later))
    assert ensure_catalogues(tmp_path / "locale") == [source.with_suffix(".mo")]
    assert not list(tmp_path.rglob("*.tmp"))


def test_words_compiled_after_django_first_looked_are_still_found(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(LOCALE, tmp_path / "locale", ignore=shutil.ignore_patterns("*.mo"))
    settings.LOCALE_PATHS = [tmp_path / "locale"]
    monkeypatch.setattr(page_builder, "LOCALE", tmp_path / "locale")
    with override("de"):
        assert gettext("You are in line") == "You are in line"
    document = json.loads(build_bundle(["de"]))
    assert document["languages"]["de"]["states"]["waiting"][1] == "Sie stehen in der Schlange"


class Texts(HTMLParser):
    """Everything of a page that a person could read."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._skip = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._skip = tag in ("script", "style")
        named = dict(attrs)
        self.found += [named[k] or "" for k in ("aria-label", "title", "alt") if k in named]
        if tag == "meta" and named.get("name") == "description":
            self.found.append(named["content"] or "")

    def handle_endtag(self, tag: str) -> None:
        self._skip = False

    def handle_data(self, data: str) -> None:
        if not self._skip and data.strip():
            self.found.append(data.strip())


@pytest.fixture(scope="module")
def pseudo_bundle() -> Iterator[PageBundle]:
    with pseudo_words():
        yield PageBundle.load(build_bundle(["en"]))


@pytest.mark.parametrize("state", list(PageState))
def test_wr_75_no_word_of_a_page_bypasses_the_catalogues(
    pseudo_bundle: PageBundle, state: PageState
) -> None:
    view = waiting_view(state=state, site="", room="", message="", incident="", unsafe=True)
    page = pseudo_bundle.render(view, "en").body.decode()
    units = r"\d[\d,]*( (seconds?|minutes?|hours?))?"
    for text in Texts(page).found:
        if text in ("English", "Error"):
            continue
        rest = re.sub(units, "", html.unescape(text))
        assert not re.search("[a-zA-Z]", rest), text


def test_the_pseudo_language_is_longer_and_keeps_holes() -> None:
    assert pseudo("About {time}") == "⟦Åƀøüŧ {time}~~⟧"
