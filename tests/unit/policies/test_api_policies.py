"""The verb `policies` on a small trace in Mooncake's format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.errors import UsageError

TURNS = ([1, 2], [3, 4], [1, 2, 5], [3, 4, 6], [1, 2, 5, 7], [3, 4, 6, 8], [9], [1, 2, 5, 7])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("policies")
    rows = [
        {
            "timestamp": 3000 * turn,
            "input_length": 512 * len(blocks),
            "output_length": 4,
            "hash_ids": blocks,
        }
        for turn, blocks in enumerate(TURNS)
    ]
    log = place / "chat.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    api.ingest([log], output=place / "out", settings=resolve_settings({"block_size": 512}))
    return place / "out"


def test_lru_is_the_capacity_curve_digit_for_digit(folder: Path) -> None:
    outcome = api.policies(folder, policies=["lru"], capacity="1,2,3,4,5,6,7,8,9")
    curve = api.query(folder, "reuse/capacity_curve", params={"capacities": "1,2,3,4,5,6,7,8,9"})
    wanted = [(r["capacity_blocks"], r["hit_blocks"], r["hit_tokens"]) for r in curve.rows()]
    rows = [row for row in outcome.tables[0].rows() if row["policy"] == "lru"]
    assert [(r["capacity_blocks"], r["hit_blocks"], r["hit_tokens"]) for r in rows] == wanted


def test_all_policies_lie_between_nothing_and_the_bounds(folder: Path) -> None:
    outcome = api.policies(folder, admission="both", ttl="10s")
    rows = outcome.tables[0].rows()
    assert {row["admission"] for row in rows} == {"all", "second_use"}
    for capacity in {row["capacity_blocks"] for row in rows}:
        at = {
            (row["policy"], row["admission"]): int(str(row["hit_tokens"]))
            for row in rows
            if row["capacity_blocks"] == capacity
        }
        low = at["strict_optimum_low", "all"]
        assert (
            max(
                tokens
                for (name, _), tokens in at.items()
                if "optimum" not in str(name) and name != "unlimited"
            )
            <= low
        )
        assert low <= at["strict_optimum_high", "all"] <= at["relaxed_optimum", "all"]
        assert at["relaxed_optimum", "all"] <= at["unlimited", "all"]
    assert "policies/second_use" in "\n".join(outcome.summary())


def test_an_equal_request_is_answered_from_what_is_there(folder: Path) -> None:
    first = api.policies(folder, policies=["lfu"], capacity="50%")
    part = next((folder / "dataset/policy_hits").iterdir())
    assert api.policies(folder, policies=["lfu"], capacity="50%").to_json() == first.to_json()
    assert next((folder / "dataset/policy_hits").iterdir()) == part


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"policies": ["lruu"]}, "KVT-U052"),
        ({"admission": "third"}, "KVT-U053"),
        ({"weight": "bytes"}, "KVT-U053"),
        ({"capacity": "1GiB"}, "KVT-U041"),
        ({"ttl": "5"}, "KVT-U004"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    folder: Path, options: dict[str, object], code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        api.policies(folder, **options)  # type: ignore[arg-type]
    assert caught.value.code == code


def test_bytes_are_blocks_of_the_llm_that_is_stated(folder: Path) -> None:
    # 512 tokens of 8 KV heads x 128 x 2 x 2 bytes x 80 layers are 160 MiB: 480 MiB are 3 blocks.
    settings = resolve_settings({"llm": "Meta-Llama-3.1-70B"})
    outcome = api.policies(folder, policies=["lru"], capacity="480MiB", settings=settings)
    assert outcome.params["capacity_blocks"] == [3]
