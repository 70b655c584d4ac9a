"""`kvtrace query`: list, show and run the queries of the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.errors import UsageError

Dataset = Annotated[
    Path | None, typer.Argument(help="Output folder of ingest or analyze.", show_default=False)
]
Name = Annotated[str | None, typer.Argument(help="Query such as reuse/summary.")]
Params = Annotated[
    list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE; repeat for more.")
]


def query(
    dataset: Dataset = None,
    name: Name = None,
    param: Params = None,
    sql: Annotated[str | None, typer.Option(help="Run this SELECT instead.")] = None,
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the SQL for the duckdb CLI.")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Run a named query over a dataset; without a name, list them all.

    \b
    Examples:
      kvtrace query
      kvtrace query reports/chat reuse/summary
      kvtrace query reports/chat reuse/capacity_curve -p capacities=1000,10000
      kvtrace query reports/chat reuse/summary --show-sql > summary.sql
    """
    from kvtrace import api

    given = _parse_params(param or [])
    if sql is not None and name is not None:
        raise UsageError(
            "KVT-U014", f"both `{name}` and --sql are given", hint="give one of them at a time"
        )
    if dataset is None:
        typer.echo(api.query_index() if as_json else "\n".join(api.list_queries()))
    elif show_sql:
        folder = None if name is None else dataset
        typer.echo(api.show_sql(name or str(dataset), given, dataset=folder))
    elif name is None and sql is None:
        raise _nothing_to_run(dataset)
    else:
        table = api.query(dataset, name, params=given, sql=sql)
        typer.echo(table.to_json() if as_json else table.to_text())


def _nothing_to_run(dataset: Path) -> UsageError:
    if dataset.exists():
        hint = f"name one, as `kvtrace query {dataset} reuse/summary`; `kvtrace query` lists all"
        return UsageError("KVT-U010", f"no query is named to run over `{dataset}`", hint=hint)
    return UsageError(
        "KVT-U013",
        f"there is no folder `{dataset}`",
        hint="the output folder of `kvtrace analyze` comes first: "
        f"`kvtrace query reports/NAME {dataset}`",
    )


def _parse_params(texts: list[str]) -> dict[str, str]:
    parsed = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise UsageError("KVT-U011", f"`{text}` is not NAME=VALUE", hint="-p capacities=1000")
        parsed[name.strip()] = value.strip()
    return parsed
