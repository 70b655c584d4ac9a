#!/usr/bin/env python3
"""Fit the efficiencies of the cost model to published measurements, and say how well they carry.

scripts/fit_cost.py POINTS.csv --systems DIR [--folds 5] [--as-of YYYY-MM-DD --write FILE]
scripts/fit_cost.py POINTS.csv --systems DIR --as-written

POINTS.csv has the columns of `kvtrace cost validate`. DIR is the folder `systems` of the unpacked
package aiconfigurator-core: its measured runs (silicon_sample.csv) are fitted too, its kernel
tables say what a family without runs reaches. Errors are printed for the rows fitted and for rows
of (LLM, GPU) pairs that a fit did not see.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from costfit.kernels import families, kernel_shares
from costfit.links import fit_links
from costfit.moves import (
    MOVE_KINDS,
    MOVE_PARAMETERS,
    cross_validate_moves,
    fit_moves,
    movable,
    source_of,
    written_values,
)
from costfit.parameters import PARAMETERS, with_values
from costfit.served import read_served
from costfit.solve import Fit, cell_of, cross_validate, solve, usable
from costfit.write import write_table

from kvtrace.cost.efficiency import efficiency_table
from kvtrace.cost.validation import Point, Prediction, predict, read_points, score
from kvtrace.units import GB


def main() -> None:
    """Fit, print, and write where asked."""
    arguments = _arguments()
    table = efficiency_table()
    shares = {name: kernel_shares(arguments.systems, name) for name in families()}
    public = read_points(arguments.points)
    served = read_served(arguments.systems / "silicon_sample.csv")
    points = usable((*public, *served), table)
    cells = {cell_of(point) for point in points}
    print(f"{len(points)} points of {len(cells)} (LLM, GPU) pairs, {len(PARAMETERS)} constants")
    _print_links(public)
    _print_moves(movable(public))
    if arguments.as_written:
        _print_errors("rows, constants as written", [predict(point, table) for point in points])
        return
    fit = solve(points, table, shares)
    fitted = with_values(table, PARAMETERS, fit.values.tolist(), shares)
    _print_constants(fit)
    _print_errors("rows fitted", [predict(point, fitted) for point in points])
    if arguments.folds:
        found = cross_validate(points, table, shares, arguments.folds)
        _print_errors(f"pairs left out, {arguments.folds} folds", found)
    if arguments.write:
        text = (
            f"scripts/fit_cost.py: {len(points)} published points of {len(cells)} (LLM, GPU) pairs "
            "(validation points and aiconfigurator-core's served runs at concurrency 4)"
        )
        write_table(arguments.write, fit, fitted, as_of=arguments.as_of, text=text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("points", type=Path)
    parser.add_argument("--systems", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5, help="0 leaves the cross-validation out")
    parser.add_argument("--write", type=Path)
    parser.add_argument(
        "--as-written", action="store_true", help="errors of the constants as they are; no fit"
    )
    parser.add_argument("--as-of", default="", help="date of the fit, for its provenance")
    arguments = parser.parse_args()
    if arguments.write and not arguments.as_of:
        parser.error("--write needs --as-of")
    return arguments


def _print_links(points: Sequence[Point]) -> None:
    """Links as copy benchmarks give them; data/links.toml holds what is used."""
    print(f"\n{'link':20} {'points':>6} {'GB/s':>8} {'us/chunk':>9} {'worst':>7}")
    for one in fit_links(points):
        rate, operation = one.max_bytes_per_s / GB, one.op_s * 1e6
        print(f"{one.link:20} {one.points:6} {rate:8.1f} {operation:9.2f} {one.worst_error:7.1%}")


def _print_moves(points: Sequence[Point]) -> None:
    """Links and moves: as written, as fitted, and errors with whole sources left out."""
    print(f"\n{'constant':36} {'as written':>10} {'fitted':>10}")
    fitted = fit_moves(points).tolist()
    for parameter, now, value in zip(MOVE_PARAMETERS, written_values(), fitted, strict=True):
        print(f"{parameter.name:36} {now:10.4g} {value:10.4g}")
    _print_errors("moves, constants as written", [predict(point) for point in points])
    sources = len({source_of(point) for point in points})
    _print_errors(f"moves, {sources} sources left out in turn", cross_validate_moves(points))


def _print_constants(fit: Fit) -> None:
    print(f"\n{'constant':30} {'value':>10} {'low':>10} {'high':>10}")
    for index, parameter in enumerate(PARAMETERS):
        value, low, high = fit.values[index], fit.low[index], fit.high[index]
        print(f"{parameter.name:30} {value:10.4g} {low:10.4g} {high:10.4g}")


def _print_errors(title: str, found: Sequence[Prediction]) -> None:
    groups: dict[str, list[Prediction]] = {}
    for one in found:
        groups.setdefault(_group(one), []).append(one)
    print(f"\n{title:42} {'n':>5} {'median':>8} {'P90':>8}")
    for name in sorted(groups):
        group = score(groups[name])
        if group.median_error is not None and group.p90_error is not None:
            print(f"{name:42} {group.n:5} {group.median_error:8.1%} {group.p90_error:8.1%}")


def _group(one: Prediction) -> str:
    if one.point.kind in MOVE_KINDS:
        is_loaded = any(word in one.point.metric for word in ("ttft", "prefill"))
        return f"{one.point.kind}{' to the first token' if is_loaded else ''}"
    rows = "served" if one.point.series == "served" else "published"
    return f"{one.point.kind}, {'experts' if one.is_moe else 'dense'}, {rows}"


if __name__ == "__main__":
    main()
