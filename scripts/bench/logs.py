"""Measures `kvtrace ingest` on large engine logs: MB/s, memory, and a reference in the same run.

Each case is a log of the given size (1 000 MB by default) that is written to a temporary folder,
ingested by a process of its own, and compared with two references that read the same bytes: a bare
`split` loop over its lines (what any line-by-line Python reader has to pay) and `grep -c`. Targets:
a text log ≥ 180 MB/s on two cores in ≤ 500 MB. Prints one JSON object a case. On a machine that
does other work too, compare `times_bare_split_loop` and the CPU seconds, not MB/s. `start_seconds`
is what an ingest of a tiny log takes: imports, no reading.

    python scripts/bench/logs.py --mb 1000
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from make_logs import write_log

CASES = (
    # (program, shape, is packed with gzip)
    ("vllm", "mixed", False),
    ("vllm", "ids", False),
    ("vllm", "details", False),
    ("vllm", "params", False),
    ("vllm", "mixed", True),
    ("sglang", "mixed", False),
)


class Timing(NamedTuple):
    """What one command took, with the processes that it started."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Of the largest process."""


def timed(command: list[str]) -> Timing:
    """Run a command to its end."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _pid, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - started
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return Timing(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def ingest(log: Path, out: Path) -> list[str]:
    """An ingest of one log."""
    return [sys.executable, "-m", "kvtrace", "ingest", str(log), "-o", str(out), "-q"]


def bare_loop(path: Path) -> list[str]:
    """A Python loop that only splits the file into lines."""
    code = "import sys\nfor line in open(sys.argv[1], 'rb', 1 << 20): line.split(b' ', 8)"
    return [sys.executable, "-c", code, str(path)]


def measure(
    kind: str, shape: str, megabytes: int, repeats: int, *, is_packed: bool
) -> dict[str, object]:
    """One case, medians over the repeats; references read the plain bytes."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / f"{kind}.log"
        lines = write_log(log, kind, megabytes * 10**6, shape=shape)
        size = log.stat().st_size
        source = log
        if is_packed:
            source = Path(folder) / "packed" / f"{kind}.log.gz"
            source.parent.mkdir()
            with log.open("rb") as plain, gzip.open(source, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(plain, packed, 1 << 20)
        short = Path(folder) / "short.log"
        write_log(short, kind, 100_000, shape=shape)
        runs = []
        for number in range(repeats):
            start = timed(ingest(short, Path(folder) / f"short-{number}"))
            found = timed(ingest(source, Path(folder) / f"out-{number}"))
            loop = timed(bare_loop(log))
            grep = timed(["grep", "-c", "request", str(log)])
            runs.append((*found, *start[:2], loop.wall_s, loop.cpu_s, grep.wall_s))
        wall_s, cpu_s, peak, start_s, start_cpu_s, loop_s, loop_cpu_s, grep_s = (
            statistics.median(column) for column in zip(*runs, strict=True)
        )
    return {
        "case": f"{kind} {shape}{' gzip' if is_packed else ''}",
        "megabytes": round(size / 1e6),
        "lines": lines,
        "seconds": round(wall_s, 2),
        "cpu_seconds": round(cpu_s, 2),
        "start_seconds": round(start_s, 2),
        "mb_per_s": round(size / wall_s / 1e6, 1),
        "mb_per_s_after_start": round(size / max(wall_s - start_s, 1e-3) / 1e6, 1),
        "mb_per_cpu_s_after_start": round(size / max(cpu_s - start_cpu_s, 1e-3) / 1e6, 1),
        "peak_mb": round(peak / 1e6),
        "times_bare_split_loop": round(wall_s / loop_s, 2),
        "cpu_times_bare_split_loop": round(cpu_s / loop_cpu_s, 2),
        "cpu_times_bare_split_loop_after_start": round((cpu_s - start_cpu_s) / loop_cpu_s, 2),
        "times_grep": round(wall_s / grep_s, 2),
        "cores": len(os.sched_getaffinity(0)),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", help="part of a case's name")
    given = parser.parse_args()
    for kind, shape, is_packed in CASES:
        if given.only is None or given.only in f"{kind} {shape}{' gzip' if is_packed else ''}":
            found = measure(kind, shape, given.mb, given.repeats, is_packed=is_packed)
            sys.stdout.write(json.dumps(found) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
