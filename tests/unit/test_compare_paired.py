"""The same requests with a cache off and on: pairs, the split of ΔTTFT, and what it shows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace import api
from kvtrace.audit.compare.pairing import Paired, pair_requests
from kvtrace.audit.compare.signs import median_change, sign_test
from kvtrace.errors import InputError
from kvtrace.schema.tables import REQUESTS, TRANSFERS

MS = 1_000_000


def requests(*rows: dict[str, object]) -> pl.DataFrame:
    """Requests in order of arrival; ids from 1 unless stated."""
    usual: dict[str, object] = {"source_id": 0, "is_headline": True, "clock": "utc"}
    usual |= {"status": "ok", "is_benchmark": False, "flags": [], "ttft_from": "arrival"}
    made = [
        {**usual, "request_key": i, "arrived_at_ns": i, "request_id_key": i + 1, **row}
        for i, row in enumerate(rows)
    ]
    return pl.DataFrame(made, schema=REQUESTS.polars_schema())


def loads(*rows: tuple[int, float]) -> pl.DataFrame:
    """Loads of (request id, ms)."""
    made = [
        {
            "transfer_key": i,
            "source_id": 0,
            "clock": "utc",
            "direction": "load",
            "request_id_key": ident,
            "duration_ns": round(ms * MS),
            "moved_bytes": 10,
        }
        for i, (ident, ms) in enumerate(rows)
    ]
    return pl.DataFrame(made, schema=TRANSFERS.polars_schema())


def pair(
    off: pl.DataFrame,
    on: pl.DataFrame,
    on_loads: pl.DataFrame | None = None,
    off_loads: pl.DataFrame | None = None,
) -> Paired:
    return pair_requests(
        off_requests=off,
        on_requests=on,
        off_transfers=loads() if off_loads is None else off_loads,
        on_transfers=loads() if on_loads is None else on_loads,
    )


def timed(ttft: float, *, queue: float = 0.0, **more: object) -> dict[str, object]:
    """A request of so many ms, all of which is queue or prefill."""
    return {
        "ttft_ns": round(ttft * MS),
        "queue_ns": round(queue * MS),
        "prefill_ns": round((ttft - queue) * MS),
        "prompt_tokens": 100,
        **more,
    }


def parts(paired: Paired) -> dict[str, float | None]:
    """The split of the only pair, in ms."""
    (row,) = paired.frame.iter_rows(named=True)
    names = ("ttft_change", "compute_saved", "move_added", "queue_added", "unexplained")
    return {n: None if row[f"{n}_ns"] is None else row[f"{n}_ns"] / MS for n in names}


def test_a_full_hit_can_be_slower_though_compute_falls() -> None:
    # The classic failure: TTFT 60 to 90 ms, compute 45 to 8, moves 15 to 82 (inside the prefill).
    paired = pair(
        requests(timed(60)), requests(timed(90)), loads((1, 82)), off_loads=loads((1, 15))
    )
    assert parts(paired) == {
        "ttft_change": 30.0,
        "compute_saved": 37.0,
        "move_added": 67.0,
        "queue_added": 0.0,
        "unexplained": 0.0,
    }


def test_a_load_beside_the_prefill_is_not_taken_out_of_it() -> None:
    # On: queue 10, load 30, prefill 20 and 5 that nobody names make 65 ms. Off: 10 and 90.
    on = timed(65, queue=10) | {"prefill_ns": 20 * MS}
    paired = pair(requests(timed(100, queue=10)), requests(on), loads((1, 30)))
    assert parts(paired) == {
        "ttft_change": -35.0,
        "compute_saved": 70.0,
        "move_added": 30.0,
        "queue_added": 0.0,
        "unexplained": 5.0,
    }


def test_what_no_log_says_is_null_and_the_rest_unexplained() -> None:
    # The cache may have loaded something, and no log says of whom: 40 ms less, 10 of it queue.
    paired = pair(requests(timed(100, queue=20)), requests(timed(60, queue=10, cached_tokens=90)))
    assert not paired.are_loads_known
    assert parts(paired) == {
        "ttft_change": -40.0,
        "compute_saved": None,
        "move_added": None,
        "queue_added": -10.0,
        "unexplained": -30.0,
    }


@pytest.mark.parametrize(
    "said", [{"cached_tokens": 0}, {"cached_tokens": 90, "cached_device_tokens": 90}]
)
def test_nothing_cached_or_all_of_it_in_hbm_moves_nothing(said: dict[str, object]) -> None:
    found = parts(pair(requests(timed(100)), requests(timed(60) | said)))
    assert (found["move_added"], found["compute_saved"]) == (0.0, 40.0)


def test_ttft_from_scheduling_counts_its_queue() -> None:
    scheduled = timed(50, queue=0) | {"ttft_from": "scheduled", "queue_ns": 30 * MS}
    assert parts(pair(requests(timed(60)), requests(scheduled)))["ttft_change"] == 20.0


def test_pairs_go_by_id_where_any_is_in_both() -> None:
    off = requests(timed(1), timed(2), timed(3))
    on = requests(
        timed(4, request_id_key=3), timed(5, request_id_key=1), timed(6, request_id_key=9)
    )
    paired = pair(off, on)
    assert paired.paired_by == "request_id"
    keys = paired.frame.select("request_key", "off_request_key").rows()
    assert keys == [(0, 2), (1, 0)]
    assert (paired.unpaired_off, paired.unpaired_on) == (1, 1)


def test_without_ids_the_nth_of_a_length_meets_the_nth_of_it() -> None:
    off = requests(*(timed(1, prompt_tokens=n, request_id_key=None) for n in (5, 7, 5)))
    on = requests(*(timed(1, prompt_tokens=n, request_id_key=None) for n in (5, 9, 5, 7, 5)))
    paired = pair(off, on)
    assert paired.paired_by == "order"
    assert paired.frame.select("request_key", "off_request_key").rows() == [(0, 0), (2, 2), (3, 1)]
    assert (paired.unpaired_off, paired.unpaired_on) == (0, 2)


def test_only_ok_rows_of_the_headline_are_paired() -> None:
    off = requests(timed(1), timed(1, status="error"), timed(1, is_headline=False))
    paired = pair(off, requests(timed(2), timed(2), timed(2)))
    assert len(paired.frame) == 1
    assert paired.unpaired_on == 2


maybe_ms = st.one_of(st.none(), st.integers(0, 200))


@given(maybe_ms, maybe_ms, maybe_ms, maybe_ms, maybe_ms)
def test_the_parts_add_up_whatever_is_logged(
    queue: int | None, prefill: int | None, ttft: int | None, move: int | None, cached: int | None
) -> None:
    row: dict[str, object] = {
        "queue_ns": queue,
        "prefill_ns": prefill,
        "ttft_ns": ttft,
        "cached_tokens": cached,
        "prompt_tokens": 9,
    }
    paired = pair(requests(timed(100, queue=3)), requests(row))
    if move is not None:
        paired = pair(requests(timed(100, queue=3)), requests(row), loads((1, move / MS)))
    (one,) = paired.frame.iter_rows(named=True)
    if ttft is None:
        assert one["ttft_change_ns"] is None
        assert one["unexplained_ns"] is None
        return
    added = (one["queue_added_ns"] or 0) + (one["move_added_ns"] or 0)
    assert one["ttft_change_ns"] == added - (one["compute_saved_ns"] or 0) + one["unexplained_ns"]


def test_the_sign_test_is_exact() -> None:
    # 1 of 5 slower: 2 × (1 + 5) / 32. Nothing of 3: 2 / 8. Even: 1. 50 of 50: 2 / 2^50.
    assert sign_test(1, 4) == pytest.approx(0.375)
    assert sign_test(0, 3) == pytest.approx(0.25)
    assert sign_test(4, 4) == 1.0
    assert sign_test(50, 0) == pytest.approx(2.0**-49)
    assert sign_test(0, 0) is None
    assert 0.0 <= (sign_test(400_000, 600_000) or 0.0) < 1e-100


def test_the_interval_of_the_median_is_of_the_seed() -> None:
    changes = np.random.default_rng(1).normal(0.02, 0.1, 400)
    first, again = (median_change(changes, seed=7) for _ in range(2))
    assert first == again
    assert first != median_change(changes, seed=8)
    assert first.value == float(np.median(changes))
    assert first.low is not None
    assert first.high is not None
    assert first.low <= 0.02 <= first.high
    assert first.block == 7  # the cube root of 400
    assert median_change(np.array([]), seed=0).value is None
    alone = median_change(np.array([0.5]), seed=0)
    assert (alone.low, alone.value, alone.high) == (0.5, 0.5, 0.5)


def timing_log(path: Path, ttfts: list[float], *, prefix: str = "r") -> Path:
    """A vLLM timing log: a request a second, so many seconds to the first token."""
    lines = [
        {
            "request_id": f"{prefix}{i}",
            "input_toks": 1000 + i,
            "output_toks": 10,
            "arrival_time": 1_773_129_606.0 + i,
            "queued_ts": 100.0 + i,
            "scheduled_ts": 100.0 + i,
            "first_token_ts": 100.0 + i + ttft,
            "last_token_ts": 102.0 + i + ttft,
        }
        for i, ttft in enumerate(ttfts)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def test_two_logs_are_read_with_one_salt_and_paired_by_id(tmp_path: Path) -> None:
    off = timing_log(tmp_path / "off.jsonl", [0.5, 0.5, 0.5, 0.5])
    on = timing_log(tmp_path / "on.jsonl", [0.75, 0.25, 0.25, 0.25])
    done = api.compare_paired(off, on, output=tmp_path / "out")
    document = json.loads(done.to_json())
    assert document["paired_by"] == "request_id"
    assert document["summary"]["slower_requests"] == 1
    assert document["summary"]["ttft_change_mean_ms"] == pytest.approx(-125)
    assert document["median_ttft_change_s"]["value"] == pytest.approx(-0.25)
    assert any("1 of 4 requests" in line for line in done.summary())
    # The datasets stay, the pairs in that of the cache that is on; a second time by their names.
    assert api.query(tmp_path / "out" / "on", "compare/paired_summary").rows()[0]["pairs"] == 4
    again = api.compare_paired(tmp_path / "out" / "off", tmp_path / "out" / "on")
    assert json.loads(again.to_json())["summary"] == document["summary"]


def lmcache_log(path: Path, loads_s: list[float]) -> Path:
    """What LMCache prints of requests, and of the load of those that have one."""
    lines = []
    for place, seconds in enumerate(loads_s):
        head = f"(EngineCore_DP0 pid=2) [2026-03-10 08:00:{place:02d},000] LMCache INFO:"
        hit, total = 512 if seconds else 0, 1000 + place
        lines.append(
            f"{head} Reqid: r{place}, Total tokens {total}, LMCache hit tokens: {hit}, need to "
            f"load: {hit} (x.py:1:lmcache.x)"
        )
        if seconds:
            lines.append(
                f"{head} Retrieved 512 out of 512 required tokens (from {total} total tokens). "
                f"size: 0.0625 gb, cost {1000 * seconds:.4f} ms, throughput: 1.2500 GB/s; "
                "(x.py:1:lmcache.x)"
            )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_loads_that_a_connector_prints_are_moves_of_their_requests(tmp_path: Path) -> None:
    # Off 500 ms each. On: r0 takes 750 ms, 600 of them the load: 350 of compute saved, 600 moved.
    # r1 takes 250 ms, 50 of them the load: 300 saved. r2 loads nothing and computes 400 ms.
    (tmp_path / "on").mkdir()
    off = timing_log(tmp_path / "off.jsonl", [0.5, 0.5, 0.5])
    timing_log(tmp_path / "on" / "timing.jsonl", [0.75, 0.25, 0.4])
    lmcache_log(tmp_path / "on" / "vllm.log", [0.6, 0.05, 0.0])
    done = api.compare_paired(off, tmp_path / "on", output=tmp_path / "out")
    pairs = api.query(
        tmp_path / "out" / "on",
        sql="select prompt_tokens, compute_saved_ns, move_added_ns, unexplained_ns"
        " from request_pairs order by prompt_tokens",
    ).rows()
    assert [tuple(row.values()) for row in pairs] == [
        (1000, 350 * MS, 600 * MS, 0),
        (1001, 300 * MS, 50 * MS, 0),
        (1002, 100 * MS, 0, 0),
    ]
    assert done.notes == ()


def test_logs_of_other_requests_are_refused(tmp_path: Path) -> None:
    off = timing_log(tmp_path / "off.jsonl", [0.5])
    on = tmp_path / "on.jsonl"
    on.write_text(off.read_text().replace("1000", "7").replace("r0", "x0"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        api.compare_paired(off, on)
    assert caught.value.code == "KVT-A020"
