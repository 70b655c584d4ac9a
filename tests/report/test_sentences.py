"""Sentences of findings, verdict and notes in the language of the report."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from kvtrace.query.catalog import load_catalog
from kvtrace.report.localise import localised
from kvtrace.report.sentences import PLACEHOLDER, english_words, load_pairs, load_sentences
from tests.report.records import make_record

ROOT = Path(__file__).parents[2]
PAIRS = load_pairs("zh")
ZH = load_sentences("zh")
SPOKEN = ("audit/findings", "audit/verdict", "audit/slo", "audit/window.py", "audit/data.py")
"""Where the sentences are made that a reader sees first."""
NOT_SAID = (
    "cannot_be_replayed answers first",  # a bug of ours, raised and never shown
    "kvtrace analyze",  # commands
    "VLLM_LOGGING_LEVEL",
    "enable_iter_perf_stats",
)


def test_languages_have_equal_keys_in_order() -> None:
    folder = files("kvtrace.report").joinpath("i18n")
    keys = [
        list(json.loads(folder.joinpath(f"sentences.{lang}.json").read_text(encoding="utf-8")))
        for lang in ("en", "zh")
    ]
    assert keys[0] == keys[1] == sorted(keys[0])


def test_translations_keep_values_and_code() -> None:
    for key, (english, chinese) in PAIRS.items():
        values = {name for name, kind in PLACEHOLDER.findall(english) if kind != "plural"}
        assert values == {name for name, _ in PLACEHOLDER.findall(chinese)}, key
        assert Counter(_CODE.findall(english)) == Counter(_CODE.findall(chinese)), key


_CODE = re.compile(r"`[^`]+`")


def filled(template: str, kinds: dict[str, str]) -> str:
    """The template with values that need no translation."""
    values = {"number": "7", "plural": "s", "name": "DRAM", "added": "", "": "DRAM"}
    return PLACEHOLDER.sub(lambda one: values[kinds[one[1]]], template)


def test_every_sentence_is_found_again_by_its_words() -> None:
    """Another pattern may fit as well; then no more English is left than in the translation."""
    for key, (english, chinese) in PAIRS.items():
        kinds = dict(PLACEHOLDER.findall(english))
        kinds |= dict.fromkeys(re.findall(r"\}\{(\w+)\}", english), "added")
        result, wanted = ZH(filled(english, kinds)), filled(chinese, kinds)
        assert result == wanted or ZH.words_left(result) == 0, key


def test_values_are_kept_and_sentences_in_them_are_translated() -> None:
    text = "A pool does not pay: hardly any reuse is left beyond Idle host DRAM"
    assert ZH(text) == "池不划算：在空闲主机 DRAM 之外几乎没有剩余的复用"
    assert ZH("on 1 instance") == "在 1 个实例上"
    assert ZH("on 12 instances") == "在 12 个实例上"


def test_sentences_that_are_put_together_are_translated_each() -> None:
    text = "Hits queue for longer. A hit saves compute and loses time; TTFT is no worse"
    assert ZH(text) == "命中排队更久。命中省了计算却亏了时间；TTFT 不变差"


def test_value_does_not_reach_over_the_members_of_a_list() -> None:
    text = "6,416 ms with Idle host DRAM, 980 ms with DRAM pool over RDMA, host bounce"
    wanted = "空闲主机 DRAM 为 6,416 ms、DRAM 池（经 RDMA，主机中转）为 980 ms"
    assert ZH(text) == wanted


def test_value_behind_a_value_is_a_piece_or_nothing() -> None:
    text = "tokens that a pool adds beyond Idle host DRAM"
    assert ZH(text) == "池在空闲主机 DRAM 之外增加的 token"
    assert ZH(f"{text}; below zero: within the noise of two replays") == (
        "池在空闲主机 DRAM 之外增加的 token；低于零：在两次重放的噪声之内"
    )


def test_list_is_translated_whole_or_not_at_all() -> None:
    assert ZH("pool size, idle DRAM") == "池大小、空闲 DRAM"
    assert ZH("pool size, a thing of the user") == "pool size, a thing of the user"


@pytest.mark.parametrize(
    "text", ["", "mooncake", "my trace of today.jsonl", "`--depth full`", "{title} is {not} ours"]
)
def test_text_that_is_no_sentence_of_ours_stays(text: str) -> None:
    assert ZH(text) == text


def test_number_is_never_lost() -> None:
    """A pattern whose values do not come out again is not taken."""
    text = "DRAM pool: 7 % of the loaded hits are slower than recomputing them (modelled)"
    assert re.findall(r"\d+", ZH(text)) == ["7"]


def test_localised_record_keeps_its_data_and_names() -> None:
    record = make_record()
    chinese = localised(record, "zh")
    assert [one.id for one in chinese.findings] == [one.id for one in record.findings]
    assert chinese.tables.keys() == record.tables.keys()
    for id, table in chinese.tables.items():
        assert table.columns == record.tables[id].columns
        assert table.units == record.tables[id].units
    assert chinese.data.requests == record.data.requests
    assert localised(record, "en") is record


def said_in(path: Path) -> Iterator[str]:
    """Texts of two words or more in a module, values as `{}`, docstrings left out."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Expr | ast.FormattedValue)
        for part in (
            node.values
            if isinstance(node, ast.JoinedStr)
            else [node.value]
            if isinstance(node, ast.Expr)
            else [node.format_spec]
        )
    }
    for node in ast.walk(tree):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )


def test_what_the_audit_says_has_a_translation() -> None:
    """A new sentence belongs into both files; up to one in fifty may wait for its words."""
    known = {PLACEHOLDER.sub("{}", english) for english, _ in PAIRS.values()}
    root = ROOT / "kvtrace"
    modules = [path for at in SPOKEN for path in (root / at).rglob("*.py")]
    modules += [root / at for at in SPOKEN if at.endswith(".py")]
    said = {
        text
        for path in modules
        if path.name != "docs.py"
        for text in said_in(path)
        if english_words(text.replace("{}", " ")) >= 3 and not text.startswith(NOT_SAID)
    }
    missing = sorted(said - known)
    assert len(said) > 500
    assert len(missing) <= len(said) / 50, missing


def test_meanings_of_query_columns_have_a_translation() -> None:
    catalog = load_catalog()
    meanings = {c.meaning for name in catalog.names() for c in catalog.describe(name).columns}
    prose = {text for text in meanings if english_words(text) >= 4 and " | " not in text}
    missing = sorted(text for text in prose if english_words(ZH(text)) >= 4)
    assert len(missing) <= len(prose) / 50, missing


def test_every_price_has_a_chinese_title() -> None:
    """A title of one word is below what counts as prose; it stands in figures all the same."""
    say = load_sentences("zh")
    prices = tomllib.loads((ROOT / "kvtrace/cost/data/prices.toml").read_text(encoding="utf-8"))
    titles = {one["title"] for one in prices["constants"].values()}
    assert len(titles) > 40
    assert not {one for one in titles if say(one) == one}
