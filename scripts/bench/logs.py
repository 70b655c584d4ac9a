"""Measures `kvtrace ingest` on large engine logs: MB/s, memory, and a reference in the same run.

Each case is a log of the given size (1 000 MB by default) that is written to a temporary folder,
ingested by a process of its own, and compared with two references that read the same bytes: a bare
`split` loop over its lines (what any line-by-line Python reader has to pay) and `grep -c`. Targets:
a text log ≥ 180 MB/s on two cores in ≤ 500 MB. Prints one JSON object a case.

    python scripts/bench/logs.py --mb 1000
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
from pathlib import Path

from make_logs import write_log

CASES = (
    ("vllm", "mixed"),
    ("vllm", "ids"),
    ("vllm", "params"),
    ("sglang", "mixed"),
)


def timed(command: list[str]) -> tuple[float, int]:
    """(wall seconds, peak resident bytes of the process) of one command."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_maxrss * 1024


def bare_loop(path: Path) -> list[str]:
    """A Python loop that only splits the file into lines."""
    code = "import sys\nfor line in open(sys.argv[1], 'rb', 1 << 20): line.split(b' ', 8)"
    return [sys.executable, "-c", code, str(path)]


def measure(kind: str, shape: str, megabytes: int, repeats: int) -> dict[str, object]:
    """One case, medians over the repeats."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"{kind}.log"
        lines = write_log(log, kind, megabytes * 10**6, shape=shape)
        size = log.stat().st_size
        runs = []
        for number in range(repeats):
            out = Path(folder) / f"out-{number}"
            ingest = [sys.executable, "-m", "kvtrace", "ingest", str(log), "-o", str(out), "-q"]
            seconds, peak = timed(ingest)
            loop_s, _ = timed(bare_loop(log))
            grep_s, _ = timed(["grep", "-c", "request", str(log)])
            runs.append((seconds, peak, loop_s, grep_s))
        seconds, peak, loop_s, grep_s = (
            statistics.median(column) for column in zip(*runs, strict=True)
        )
    return {
        "case": f"{kind} {shape}",
        "megabytes": round(size / 1e6),
        "lines": lines,
        "seconds": round(seconds, 2),
        "mb_per_s": round(size / seconds / 1e6, 1),
        "peak_mb": round(peak / 1e6),
        "times_bare_split_loop": round(seconds / loop_s, 2),
        "times_grep": round(seconds / grep_s, 2),
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", help="part of a case's name")
    given = parser.parse_args()
    for kind, shape in CASES:
        if given.only is None or given.only in f"{kind} {shape}":
            found = measure(kind, shape, given.mb, given.repeats)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
