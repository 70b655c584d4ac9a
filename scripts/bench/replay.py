"""Measures `kvtrace replay` on a Mooncake trace: against ai-dynamo's replay, a sweep, a long trace.

`hbm`, `host`, `three`: whole processes, ours against the peer's, in turn. Ours has eight instances,
HBM, host DRAM and a pool, moves that contend for links, a row for every request: `seconds` are from
the trace file to the stored results of one `kvtrace replay TRACE --json`, `engine_seconds` what the
engine says of itself. The peer's process reads the same file and replays eight workers with as many
blocks of HBM, routed round robin as ours, in the case that is cheapest to it (`hbm`), with a
private host tier (`host`), or with a shared third tier too (`three`, which takes it minutes).
`sweep`: 200 scenarios of the same trace in one command, against as many commands of one scenario.
`million`: the trace a hundred times
(`--growth 100 --compress 0.01`: a hundred interleaved copies at the old rate), against one
(`exponent` 1: time grows as the requests do).

Figures are medians of `--repeats`, and ratios above 1 are in favour of kvtrace. Prints one JSON
object a case. On a machine that does other work too, compare ratios and CPU seconds. `--path` holds
another kvtrace.

    python scripts/bench/replay.py conversation.jsonl --peer dyn/bin/python --repeats 5
    python scripts/bench/replay.py conversation.jsonl --case sweep --case million --repeats 1

`scripts/bench/peers.sh` says how the peer's environment is made.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from math import log
from pathlib import Path
from typing import Final, NamedTuple

INSTANCES: Final = 8
BLOCK_TOKENS: Final = 512
HBM_BLOCKS: Final = 2_048
HOST_BLOCKS: Final = 20_000
POOL_BLOCKS: Final = 160_000
KV_BYTES_PER_TOKEN: Final = 327_680
"""Llama-3.1-70B in bf16."""

SCENARIO: Final = f"""
title = "HBM, host DRAM and a pool"
base = "dram_idle"
llm = "Meta-Llama-3.1-70B"
hardware = "H100-SXM5"
tp = 8
instances = {INSTANCES}
routing = "round_robin"
hbm_blocks = {HBM_BLOCKS}
chain = ["host_dram", "pool"]

[tier.host_dram]
capacity_blocks = {HOST_BLOCKS}

[tier.pool]
path = "pool_rdma_direct"
capacity_blocks = {POOL_BLOCKS}
"""

OURS: Final = """
import json, subprocess, sys
command = [sys.executable, "-m", "kvtrace", "replay", *sys.argv[1:], "--json", "-q"]
told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
runs = told.get("scenarios") or told["runs"]
engine_s = sum(one["engine_wall_s"] for one in runs)
print(json.dumps([told.get("requests", len(runs)), engine_s, runs[0]["hit_ratio_tokens"]]))
"""

PEER: Final = """
import json, sys
from dynamo.replay import run_trace_replay
path, size, workers, engine = sys.argv[1:]
report = run_trace_replay(
    path,
    trace_block_size=int(size),
    num_workers=int(workers),
    extra_engine_args={"engine": json.loads(engine)},
)
names = ("completed_requests", "wall_time_ms", "prefix_cache_reused_ratio")
requests, wall_ms, ratio = (report.summary[name] for name in names)
print(json.dumps([requests, wall_ms / 1000, ratio]))
"""

HBM: Final[dict[str, object]] = {
    "block_size": BLOCK_TOKENS,
    "num_gpu_blocks": HBM_BLOCKS,
    "kv_cache_bytes_per_token": KV_BYTES_PER_TOKEN,
}
HOST: Final = HBM | {"native_host_offload": {"num_host_blocks": HOST_BLOCKS}}
THREE: Final = HOST | {
    "g3_offload": {
        "scope": "cluster_shared",
        "num_g3_blocks": POOL_BLOCKS,
        "read_bandwidth_gbps": 50,
        "write_bandwidth_gbps": 50,
        "shared_read_bandwidth_gbps": 200,
        "shared_write_bandwidth_gbps": 200,
        "latency_to_first_byte_ms": 0.1,
    }
}
PEER_CASES: Final = {"hbm": HBM, "host": HOST, "three": THREE}
SWEEP: Final = (
    "host_dram.capacity_blocks=" + ",".join(str(1_000 * step) for step in range(1, 21)),
    "rdma.rate=" + ",".join(f"{5 * step}GB/s" for step in range(1, 11)),
)
"""20 × 10 scenarios."""
CASES: Final = {
    "sweep": ("--sweep", SWEEP[0], "--sweep", SWEEP[1]),
    "million": ("--growth", "100", "--compress", "0.01", "--depth", "full"),
}


class Run(NamedTuple):
    """What one process took, and what it said."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Of the largest process, those that it started included."""
    requests: int
    """Replayed; of a sweep its scenarios."""
    engine_s: float
    hit_ratio: float


def run(command: list[str], path: Path | None = None) -> Run:
    """Run a command to its end; the last line that it prints is its report."""
    quiet = {**os.environ, "DYN_LOG": "error", "RUST_LOG": "error"}
    if path is not None:
        quiet["PYTHONPATH"] = str(path)
    with tempfile.TemporaryFile() as said:
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.DEVNULL, env=quiet)
        _pid, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if status:
            raise SystemExit(f"{command[0]} failed with status {process.returncode}")
        said.seek(0)
        told = json.loads(said.read().splitlines()[-1])
    return Run(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, *told)


class Ours:
    """Our side: a folder of its own for each run, and the kvtrace of a path."""

    def __init__(self, trace: Path, path: Path | None) -> None:
        self._trace = trace
        self._path = path

    def once(self, *flags: str) -> Run:
        """From the trace file to stored results."""
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder) / "three.toml"
            scenario.write_text(SCENARIO, encoding="utf-8")
            places = [str(self._trace), "-o", str(Path(folder) / "out")]
            command = [*places, "--scenario", str(scenario), *flags]
            return run([sys.executable, "-c", OURS, *command], self._path)


def peers(python: str, trace: Path, engine: dict[str, object]) -> Run:
    """The peer's replay of the same file."""
    sizes = [str(BLOCK_TOKENS), str(INSTANCES)]
    return run([python, "-c", PEER, str(trace), *sizes, json.dumps(engine)])


def absence(python: str | None) -> str | None:
    """Why the peer cannot run; None: it can."""
    if python is None:
        return "no --peer was given"
    try:
        done = subprocess.run(
            [python, "-c", "import dynamo.replay"], capture_output=True, text=True, check=False
        )
    except OSError as fault:
        return str(fault)
    return (done.stderr.strip() or "no reason given").splitlines()[-1] if done.returncode else None


def medians(runs: list[Run]) -> dict[str, float]:
    """The figures of one side."""
    wall_s, cpu_s, peak, requests, engine_s, ratio = (
        statistics.median(column) for column in zip(*runs, strict=True)
    )
    return {
        "requests": requests,
        "seconds": round(wall_s, 2),
        "cpu_seconds": round(cpu_s, 2),
        "engine_seconds": round(engine_s, 3),
        "peak_mb": round(peak / 1e6),
        "hit_ratio": round(ratio, 4),
    }


def ratios(mine: dict[str, float], theirs: dict[str, float]) -> dict[str, float]:
    """The peer's figures by ours."""
    names = ("seconds", "cpu_seconds", "engine_seconds", "peak_mb")
    return {f"times_{name}": round(theirs[name] / mine[name], 2) for name in names}


def against_peer(ours: Ours, case: str, given: argparse.Namespace) -> dict[str, object]:
    """Runs of both sides in turn."""
    reason = absence(given.peer)
    mine: list[Run] = []
    theirs: list[Run] = []
    for _ in range(given.repeats):
        mine.append(ours.once())
        if reason is None:
            theirs.append(peers(given.peer, given.trace, PEER_CASES[case]))
    row: dict[str, object] = {"kvtrace": medians(mine)}
    if reason is not None:
        return {**row, "peer_skipped": reason}
    return {**row, "peer": medians(theirs), "ratios": ratios(medians(mine), medians(theirs))}


def against_itself(ours: Ours, case: str, given: argparse.Namespace) -> dict[str, object]:
    """Many replays, or a long one, against one of the trace."""
    pairs = [(ours.once(), ours.once(*CASES[case])) for _ in range(given.repeats)]
    one, many = (medians([pair[side] for pair in pairs]) for side in (0, 1))
    row: dict[str, object] = {"one": one, "many": many}
    if case == "sweep":
        names = ("seconds", "cpu_seconds")
        alone = {name: many["requests"] * one[name] / many[name] for name in names}
        return {**row, **{f"times_{name}": round(times, 2) for name, times in alone.items()}}
    times = many["requests"] / one["requests"]
    longer = many["engine_seconds"] / one["engine_seconds"]
    more = many["requests"] - one["requests"]
    return {
        **row,
        "exponent": round(log(longer) / log(times), 3),
        "bytes_a_request": round(1e6 * (many["peak_mb"] - one["peak_mb"]) / more),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path, help="a trace in Mooncake's format, not packed")
    parser.add_argument("--peer", help="the Python of the peer's environment")
    parser.add_argument("--case", action="append", choices=[*PEER_CASES, *CASES], help="[hbm]")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--path", type=Path, help="a folder that holds another kvtrace")
    given = parser.parse_args()
    ours = Ours(given.trace, given.path)
    for case in given.case or ["hbm"]:
        measure = against_peer if case in PEER_CASES else against_itself
        row = {"case": case, **measure(ours, case, given)}
        row["cores"] = len(os.sched_getaffinity(0))
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
