"""A mapping file that cannot be: what is wrong is said with key, cause and something to paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.errors import UsageError
from kvtrace.ingest.mapping import load_mapping
from kvtrace.ingest.mapping.parse import COUNT_FIELDS, FIELDS, unit_in_name
from tests.conftest import REPO
from tests.unit.mapped import json_lines, mapping, read

TIME = '[time]\nfield = "ts"\n'


def _refused(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        mapping(text)
    error = caught.value
    assert error.where is not None
    assert error.where.path == "map.toml"
    assert error.cause
    assert error.hint
    return error


@pytest.mark.parametrize(
    ("text", "cause", "hint"),
    [
        ('machting = "x"', "`machting`", "`match`"),
        ('[fields]\nprompt_token = "p"', "`fields.prompt_token`", "`prompt_tokens`"),
        ('[fields]\nsession_id = "s"', "`fields.session_id`", "`session`"),
        ('[fields]\nlatency = "l"', "`fields.latency`", "`e2e`"),
        ('[time]\nfeild = "ts"', "`time.feild`", "`field`"),
        ('[time]\nunit = "s"', "`time.field` is missing", 'field = "ts"'),
        (f'{TIME}unit = "sec"', "`time.unit` is none of", "unit = "),
        (f'{TIME}zone = "Mars/Base"', "not an IANA time zone", "Europe/Berlin"),
        (f'{TIME}unit = "iso"\nclock = "relative"', "counts from a start", "leave `clock` out"),
        (f'{TIME}meaning = "end"', "needs the duration", "e2e = {"),
        ('[fields]\nttft = "first"', "has no unit", 'unit = "ms"'),
        ('[fields]\nttft = { field = "ttft_ms", unit = "s" }', "milliseconds", "force = true"),
        ('[fields]\ne2e = { unit = "s" }', "does not say which field", "field = "),
        ("[fields]\nprompt_tokens = 5", "names no field", "prompt_tokens = "),
        ('[fields]\nprompt_tokens = "a.b.c.d.e.f.g.h.i"', "deeper than 8", "nearer"),
        ('[fields]\nusage = "u"\nprompt_tokens = "p"', "both say how many tokens", "leave one"),
        ('[fields]\nusage = "u"\n[semantics]\nprompt_includes_cached = true', "usage", "leave"),
        ('[fields]\nblock_hashes = "h"', "has no `block_size`", "block_size = 16"),
        (
            '[fields]\nprompt_tokens = "p"\nblock_hashes = "h"\ntoken_ids = "t"',
            "both give the blocks",
            "keep `block_hashes`",
        ),
        (
            '[fields]\nprompt_tokens = "p"\nblock_hashes = { field = "h", block_size = 0 }',
            "no whole number from 1",
            "block_size = 16",
        ),
        ('[fields]\nfirst_token_at = "f"', "needs the time of the start", "[time]"),
        (
            f'{TIME}[fields]\nfinished_at = "f"\ne2e = {{ field = "e", unit = "s" }}',
            "how long a request took",
            "leave one",
        ),
        (
            '[fields]\nstatus = { field = "s", ok = [200], error = [200] }',
            "lists `200` under `ok` and `error`",
            "once",
        ),
        ('framing = "lines"\ndelimiter = ";"\n[fields]\nmodel = "m"', "a delimiter", "csv"),
        ('delimiter = ":"\n[fields]\nmodel = "m"', "`delimiter`", "delimiter = "),
        ('framing = "csv"\nrecords = "r"\n[fields]\nmodel = "m"', "`records`", "leave"),
        ('columns = ["a", "a"]\n[fields]\nmodel = "a"', "twice", "once"),
        ('name = "My Gateway"\n[fields]\nmodel = "m"', "short name", 'name = "gateway"'),
        ("[semantics]\nprompt_includes_cached = 1", "neither true nor false", "= true"),
        ("fields = 3", "`fields` is not a table", "[fields]"),
        ("source = 3", "not a list of tables", "[[source]]"),
        ('[[source]]\n[source.fields]\nprmpt = "p"', "`source 1.fields.prmpt`", "`prompt`"),
        ("", "names no field", "[fields]"),
        ('[where]\nkind = { a = 1 }\n[fields]\nmodel = "m"', "texts and numbers", "kind"),
    ],
)
def test_what_cannot_be_is_refused_with_a_remedy(text: str, cause: str, hint: str) -> None:
    error = _refused(text)
    assert error.code == "KVT-U032"
    assert cause in (error.cause or "")
    assert hint in (error.hint or "")


def test_a_file_that_is_no_toml_or_absent_is_named(tmp_path: Path) -> None:
    path = tmp_path / "map.toml"
    with pytest.raises(UsageError) as absent:
        load_mapping(path)
    assert absent.value.code == "KVT-U030"
    assert "--suggest-mapping" in (absent.value.hint or "")
    path.write_text("[time\n")
    with pytest.raises(UsageError) as broken:
        load_mapping(path)
    assert (broken.value.code, broken.value.exit_code) == ("KVT-U031", 2)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError):
        load_mapping(path)


def test_a_unit_that_the_name_contradicts_can_be_forced() -> None:
    forced = mapping('[fields]\nttft = { field = "ttft_ms", unit = "s", force = true }')
    assert forced.sources[0].durations["ttft"].power == 0


def test_the_digest_is_of_what_is_said_not_of_how() -> None:
    plain = mapping('[fields]\nmodel = "m"')
    spaced = mapping('# a comment\n[fields]\n\nmodel   = "m"  # another')
    other = mapping('[fields]\nmodel = "n"')
    assert plain.digest == spaced.digest
    assert plain.digest != other.digest


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("ttft_ms", "ms"),
        ("latencyMs", "ms"),
        ("duration_seconds", "s"),
        ("t_ns", "ns"),
        ("wait-us", "us"),
        ("elapsed_in_millis", "ms"),
        ("tokens", None),
        ("latency", None),
        ("ms", None),
        ("status", None),
    ],
)
def test_units_in_names(name: str, unit: str | None) -> None:
    assert unit_in_name(name) == unit


def test_a_glob_means_names_with_and_without_compression() -> None:
    source = mapping('match = "gateway-*.jsonl"\n[fields]\nmodel = "m"').sources[0]
    assert source.matches("gateway-1.jsonl")
    assert source.matches("logs/gateway-1.jsonl.gz")
    assert not source.matches("engine.jsonl")


def test_every_key_is_documented() -> None:
    text = (REPO / "docs" / "mapping.md").read_text(encoding="utf-8")
    keys = {*FIELDS, *COUNT_FIELDS, "match", "framing", "delimiter", "columns", "records", "absent",
            "where", "benchmark", "name", "zone", "unit", "meaning", "clock", "block_size",
            "chained", "scope", "tail", "prompt_includes_cached",
            "output_includes_reasoning"}  # fmt: skip
    assert sorted(key for key in keys if f"`{key}`" not in text) == []


def test_a_column_that_is_there_and_empty_is_not_taken_for_a_misspelt_one() -> None:
    text = '[fields]\nprompt_tokens = "p"\nturn = "turn"\nsession = "sesion"\n'
    reading = read(
        text.replace("sesion", "session"), b"p,turn,session\n" + b"5,,\n" * 3, name="log.csv"
    )
    (note,) = (one for one in reading.context.notes if one.code == "mapped_field_absent")
    assert "`turn` (it is there, and empty)" in note.message
    json_lined = read(
        text, json_lines([{"p": 5, "turn": None, "session": "a"}] * 2), name="log.jsonl"
    )
    (note,) = (one for one in json_lined.context.notes if one.code == "mapped_field_absent")
    assert "`turn` (it is there, and empty)" in note.message
    assert "`sesion` (did you mean `session`?)" in note.message
