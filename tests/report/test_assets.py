"""What ships with the report: the vendored bundle, the words in two languages."""

from __future__ import annotations

import hashlib
import json
import re
from importlib.resources import files

import pytest

from kvtrace.report.texts import load_texts, read_asset

ASSETS = files("kvtrace.report").joinpath("assets")
FIELD_TERMS = ("TTFT", "TPOT", "Prefill", "Decode", "KV", "HBM", "PCIe", "LRU")


def test_plotly_bundle_is_the_pinned_one() -> None:
    digest, name = read_asset("plotly-cartesian.sha256").split()
    assert hashlib.sha256(ASSETS.joinpath(name).read_bytes()).hexdigest() == digest


def test_plotly_bundle_comes_with_its_licence() -> None:
    assert "MIT License" in read_asset("plotly-cartesian.LICENSE.txt")


@pytest.mark.parametrize("name", ["report.css", "report.js", "plotly-cartesian.min.js"])
def test_inline_assets_survive_the_html_parser_unchanged(name: str) -> None:
    raw = ASSETS.joinpath(name).read_bytes()
    assert not re.search(rb"</(script|style)|<!--|\r|\x00", raw, re.IGNORECASE)


def test_languages_have_equal_keys() -> None:
    assert load_texts("en").strings.keys() == load_texts("zh").strings.keys()


def test_languages_have_equal_placeholders() -> None:
    english, chinese = load_texts("en").strings, load_texts("zh").strings
    for key, text in english.items():
        fields = set(re.findall(r"\{(\w+)\}", text))
        assert fields == set(re.findall(r"\{(\w+)\}", chinese[key])), key


def test_field_terms_and_flags_stay_untranslated() -> None:
    english, chinese = load_texts("en").strings, load_texts("zh").strings
    for key, text in english.items():
        for flag in re.findall(r"`[^`]+`", text):
            assert flag in chinese[key], key
        for term in FIELD_TERMS:
            if key.startswith("glossary.") and key.endswith(".term") and term == text:
                assert chinese[key] == text


def test_every_string_is_used_or_is_of_a_family() -> None:
    """A string that nothing can ask for is dead; families are asked for by a computed key."""
    root = files("kvtrace.report")
    sources = [path.read_text() for path in root.iterdir() if path.name.endswith(".py")]
    sources += [path.read_text() for path in root.joinpath("figures").iterdir() if path.is_file()]
    questions = root.joinpath("questions")
    sources += [path.read_text() for path in questions.iterdir() if path.is_file()]
    templates = root.joinpath("templates")
    sources += [path.read_text() for path in templates.iterdir() if path.is_file()]
    sources += [path.read_text() for path in templates.joinpath("sections").iterdir()]
    code = "\n".join(sources)
    families = set(re.findall(r"""["']([a-z_0-9.]+\.)(?:["']|\{)""", code))
    families |= {f"{prefix}." for prefix in re.findall(r"""or_code\("([a-z_.]+)\"""", code)}
    dead = [
        key
        for key in load_texts("en").strings
        if f'"{key}"' not in code
        and f"'{key}'" not in code
        and not any(key.startswith(family) for family in families)
    ]
    assert dead == []


def test_strings_are_sorted_so_that_changes_stay_small() -> None:
    for lang in ("en", "zh"):
        text = files("kvtrace.report").joinpath("i18n", f"{lang}.json").read_text(encoding="utf-8")
        keys = list(json.loads(text))
        assert keys == sorted(keys)
