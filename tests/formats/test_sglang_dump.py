"""SGLang's pickled dumps: refused, or read without anything in them happening."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.errors import InputError
from kvtrace.ingest.formats.sglang_dump import FORMATS
from kvtrace.ingest.pipeline import fingerprint, ingest_paths
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from kvtrace.ingest.values import inert_pickle
from kvtrace.ingest.values.inert_pickle import Inert, InertPickleError, Projection, inert_rows
from kvtrace.units import NS_PER_MS, NS_PER_S
from tests.formats.reading import DATA, Reading, read_bytes
from tests.formats.sglang import pickled, request, server_args

DUMP = FORMATS[0]
KEY = b"k" * 16
GOOD = DATA / "sglang_dump" / "good.pkl"
MALFORMED = DATA / "sglang_dump" / "malformed.pkl"
ARRIVED_S = 1_764_579_600.25


def answer(rid: str, prompt: int, cached: int, **more: object) -> dict[str, object]:
    meta = {
        "id": rid,
        "finish_reason": {"type": "stop"},
        "prompt_tokens": prompt,
        "completion_tokens": 3,
        "cached_tokens": cached,
        **more,
    }
    return {"text": "secret answer", "meta_info": meta}


def good() -> dict[str, object]:
    """Two requests that share 32 tokens, and one that is not done."""
    head = list(range(100, 132))
    return {
        "server_args": server_args(
            model_path="/home/somebody/tiny-llama", page_size=16, tp_size=2, api_key="secret key"
        ),
        "requests": [
            (
                request(rid="e-1", text="secret prompt", input_ids=[*head, *range(16)]),
                answer("e-1", 48, 32, e2e_latency=0.5, first_token_latency=0.125),
                ARRIVED_S,
                ARRIVED_S + 0.5,
            ),
            (
                request(rid="e-2", input_ids=[*head, 7], lora_path="/home/somebody/adapter-a"),
                answer("e-2", 33, 0),
                ARRIVED_S + 1,
                ARRIVED_S + 3,
            ),
            (request(rid="e-3", input_ids=[*head, 9, 9]), {}, ARRIVED_S + 2, ARRIVED_S + 9),
        ],
    }


def malformed() -> dict[str, object]:
    """One usable request between things that are none."""
    return {
        "server_args": server_args(model_path="m"),
        "requests": [
            None,
            (),
            (request(rid="f-1", input_ids=[1]), answer("f-1", -1, 0), ARRIVED_S, ARRIVED_S),
            (request(rid="f-2", input_ids=[1, 2, 3]), answer("f-2", 3, 0), ARRIVED_S, ARRIVED_S),
            (request(rid="f-3", input_ids="text"), {"meta_info": 5}, ARRIVED_S, ARRIVED_S),
            ("f-4", 1, 2, 3),
        ],
    }


def read(data: bytes, *, block_size_tokens: int | None = None) -> Reading:
    return read_bytes(DUMP, data, token_key=KEY, block_size_tokens=block_size_tokens)


def test_the_fixtures_are_what_this_file_says() -> None:
    assert GOOD.read_bytes() == pickled(good())
    assert MALFORMED.read_bytes() == pickled(malformed())


def test_requests_of_a_dump() -> None:
    reading = read(GOOD.read_bytes())
    first, second, third = reading.requests
    assert [row.request_id for row in reading.requests] == ["e-1", "e-2", "e-3"]
    assert [row.offset for row in reading.requests] == [0, 1, 2]
    assert (first.prompt_tokens, first.cached_tokens, first.output_tokens) == (48, 32, 3)
    assert (first.e2e_ns, first.ttft_ns) == (500 * NS_PER_MS, 125 * NS_PER_MS)
    assert first.arrived_at_ns == 1_764_579_600_250_000_000
    assert second.e2e_ns == 2 * NS_PER_S  # finished − created
    assert (second.adapter, second.llm) == ("adapter-a", "tiny-llama")
    assert (third.status, third.prompt_tokens, third.cached_tokens) == ("open", 34, None)
    assert third.e2e_ns is None
    context = reading.context
    assert (context.evidence_grade, context.clock, context.block_scope) == ("A", "utc", "global")
    assert context.found_block_size_tokens == 16
    assert context.engine_facts == {"llm": "tiny-llama", "tensor_parallel": 2, "block_size": 16}


def test_equal_prefixes_have_equal_keys_and_adapters_do_not_share() -> None:
    first, second, third = (row.block_keys or [] for row in read(GOOD.read_bytes()).requests)
    assert [len(keys) for keys in (first, second, third)] == [3, 3, 3]  # 48, 33, 34 tokens
    assert first[:2] == third[:2]  # 32 tokens
    assert first[2] != third[2]
    assert first[0] != second[0]  # of the same tokens with an adapter


def test_pages_of_one_token_are_hashed_in_whole_blocks() -> None:
    document = {**good(), "server_args": server_args(model_path="m", page_size=3)}
    assert read(pickled(document)).context.found_block_size_tokens == 18  # 6 pages
    document = {**good(), "server_args": None}
    context = read(pickled(document)).context
    assert context.found_block_size_tokens == 16
    assert read(pickled(document), block_size_tokens=32).context.found_block_size_tokens == 32


def test_ids_that_are_not_the_prompt_are_not_hashed() -> None:
    def row(ids: object, prompt: int) -> tuple[object, ...]:
        return (request(rid="a", input_ids=ids), answer("a", prompt, 0), ARRIVED_S, ARRIVED_S)

    rows = [row([1, 2], 3), row([[1, 2], [3]], 2), row([-1, 2], 2), row(None, 2)]
    reading = read(pickled({"server_args": None, "requests": rows}))
    assert [r.block_keys for r in reading.requests] == [None] * 4
    assert reading.requests[0].flags == ("ids_differ_from_prompt",)
    assert reading.context.evidence_grade == "B"


def test_entries_that_are_no_requests_are_counted() -> None:
    reading = read(MALFORMED.read_bytes())
    assert [row.request_id for row in reading.requests] == ["f-2"]
    (note,) = reading.context.notes
    assert (note.code, note.message) == (
        "dump_entries_unusable",
        "5 of 6 entries are no requests.",
    )


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_every_protocol_is_told_and_read(protocol: int) -> None:
    data = pickled(good(), protocol=protocol)
    refused = recognise(data, "dump", formats=all_formats())
    assert refused.format is None
    assert "--allow-inert-pickle" in refused.reason
    found = recognise(data, "dump", formats=all_formats(), allow_inert_pickle=True)
    assert found.format is DUMP
    assert len(read(data).requests) == 3


def test_a_log_that_prints_server_args_is_no_dump() -> None:
    line = b"[2025-12-01 09:00:00] server_args=ServerArgs(model_path='a', tp_size=1)\n"
    found = recognise(line, "log", formats=all_formats(), allow_inert_pickle=True).format
    assert found is None or found.name == "sglang_text"
    other = pickle.dumps({"weights": [1]})
    assert recognise(other, "x", formats=all_formats(), allow_inert_pickle=True).format is None


def test_a_dump_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ingest_paths([GOOD], salt=b"salt")
    assert "--allow-inert-pickle" in caught.value.render()
    allowed = IngestSettings(allow_inert_pickle=True)
    ingested = ingest_paths([GOOD], settings=allowed, salt=b"salt")
    assert len(ingested.frames["requests"]) == 3
    assert ingested.sources[0].evidence_grade == "A"
    assert fingerprint([GOOD], allowed) != fingerprint([GOOD], IngestSettings())
    assert api.sniff([str(GOOD)]).files[0].format is None


def test_no_text_of_a_dump_comes_out_of_the_reading_process() -> None:
    rows = inert_rows(
        GOOD.read_bytes(),
        rows_key="requests",
        fields=["server_args", "rid", "text", "api_key", "model_path"],
        texts=["rid"],
    )
    said = b"\n".join(rows)
    assert b"secret" not in said
    assert b'"text":null' in said
    assert b"e-1" in said


# --- attacks ---


class _Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._call


def test_calls_in_a_pickle_do_not_happen(tmp_path: Path) -> None:
    import os
    import subprocess

    mark = tmp_path / "ran"
    calls = [
        _Calls(os.system, f"touch {mark}"),
        _Calls(eval, f"open({str(mark)!r}, 'w')"),
        _Calls(exec, f"open({str(mark)!r}, 'w')"),
        _Calls(open, str(mark), "w"),
        _Calls(subprocess.check_call, ["touch", str(mark)]),
        _Calls(getattr, _Calls(__import__, "os"), "system"),
        _Calls(_Calls, os.system, f"touch {mark}"),
    ]
    hurt = {**good(), "server_args": calls, "crash": calls}
    data = pickled(hurt)
    assert [row.request_id for row in read(data).requests] == ["e-1", "e-2", "e-3"]
    assert not mark.exists()
    pickle.loads(pickled([_Calls(open, str(mark), "w")]))[0].close()  # what it would have done
    assert mark.exists()


def bomb(kind: str) -> bytes:
    """A pickle that tries to take memory, time or the stack."""
    start = b"\x80\x04}(\x8c\x0bserver_args"
    rest = b"\x8c\x08requests]u."
    if kind == "memory of the memo":
        return start + b"Nr\xff\xff\xff\x7f" + rest
    if kind == "announced bytes":
        return start + b"\x96" + (1 << 40).to_bytes(8, "little") + rest
    if kind == "deep lists":
        return start + b"]" * 2_000_000 + b"a" * 1_999_999 + rest
    if kind == "deep key":
        return start + b"})" + b"\x85" * 3_000_000 + b"Ns" + rest
    if kind == "persistent":
        return start + b"\x8c\x01xQ" + rest
    if kind == "extension":
        return start + b"\x82\x01" + rest
    if kind == "out of band":
        return b"\x80\x05" + start[2:] + b"\x97" + rest
    raise ValueError(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "memory of the memo",
        "announced bytes",
        "deep lists",
        "deep key",
        "persistent",
        "extension",
        "out of band",
    ],
)
def test_bombs_are_rejected(kind: str) -> None:
    reading = read(bomb(kind))
    reasons = [(reason, detail) for _, reason, detail in reading.context.tally.rejects]
    assert [reason for reason, _ in reasons] in (["unreadable_pickle"], ["no_requests"])
    assert reading.requests == []


def test_a_list_that_is_repeated_without_end_is_rejected() -> None:
    ids = list(range(1_000))
    entry = (request(rid="a", input_ids=ids), answer("a", 1_000, 0), ARRIVED_S, ARRIVED_S)
    data = pickled({"server_args": None, "requests": [entry] * 500})  # 500 000 ids in 4 kB
    reading = read(data)
    assert [detail for _, _, detail in reading.context.tally.rejects] == [
        "it repeats its values too often"
    ]


@pytest.mark.parametrize(
    ("data", "detail"),
    [
        (b"\x80\x04", "it is no whole pickle"),
        (pickled(good())[:-20], "it is no whole pickle"),
        (pickle.dumps([1]), "it is no dict with a list of rows"),
        (pickle.dumps({"server_args": 1, "requests": {}}), "it is no dict with a list of rows"),
    ],
)
def test_other_shapes_are_rejected(data: bytes, detail: str) -> None:
    rejects = read(data).context.tally.rejects
    assert [(reason, said) for _, reason, said in rejects] == [("unreadable_pickle", detail)]


def test_a_dump_without_requests_gives_nothing() -> None:
    reading = read(pickled({"server_args": None, "requests": []}))
    assert reading.rejected == [(1, "no_requests")]


def test_arguments_that_are_none_are_noted() -> None:
    reading = read(pickled({**good(), "server_args": [1, 2]}))
    assert len(reading.requests) == 3
    assert reading.note_codes == {"server_args_unknown"}


def test_a_process_that_dies_or_takes_too_long_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def rows() -> list[bytes]:
        return list(inert_rows(b"x", rows_key="requests", fields=[], texts=[]))

    script = tmp_path / "child.py"
    monkeypatch.setattr(inert_pickle, "__file__", str(script))
    with pytest.raises(InertPickleError, match="limit"):
        rows()  # there is no such script
    script.write_text("import time\ntime.sleep(3600)\n")
    monkeypatch.setattr(inert_pickle, "_BASE_CPU_S", 0)
    with pytest.raises(InertPickleError, match="limit"):
        rows()


def test_inert_objects_take_anything_and_do_nothing() -> None:
    made = Inert(1, named=2)
    made.append(1)
    made.extend([1])
    made.add(1)
    made["key"] = 1
    made.__setstate__({"a": 1})
    assert made.state == {"a": 1}
    with pytest.raises(pickle.UnpicklingError):
        Inert.append = None  # type: ignore[method-assign, assignment]


def test_what_may_go_out() -> None:
    projection = Projection({"a", "b"}, {"a"}, budget=100)
    inner = Inert()
    inner.__setstate__(({"a": "kept"}, {"b": "dropped"}))
    assert projection.plain({"a": inner, "b": [1, 1 << 70], "c": 1, 5: 2}) == {
        "a": {"a": "kept", "b": None},
        "b": [1, None],
    }
    assert projection.plain([float("inf"), 0.5, True, None, b"x", "text"]) == [
        None, 0.5, True, None, None, None,
    ]  # fmt: skip
    deep: list[object] = []
    for _ in range(20):
        deep = [deep]
    assert json.dumps(projection.plain(deep)).count("[") == 8  # eight levels, then null


def test_the_script_needs_nothing_but_the_standard_library() -> None:
    source = Path(inert_pickle.__file__).read_text()
    names = {
        line.split()[1].partition(".")[0]
        for line in source.splitlines()
        if line.strip().startswith(("import ", "from "))
    }
    assert names <= set(sys.stdlib_module_names) | {"__future__"}
