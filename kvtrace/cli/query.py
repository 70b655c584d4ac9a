"""`kvtrace query`: list, describe, show and run the queries of the catalogue, or one's own."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.completing import completes
from kvtrace.cli.voice import note, result
from kvtrace.errors import UsageError

if TYPE_CHECKING:
    from kvtrace.api import QueryTable
    from kvtrace.api.querymodes import Mode as ModeName


class Mode(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    PARQUET = "parquet"


Dataset = Annotated[
    str | None,
    typer.Argument(
        help="Output folder of ingest or analyze; without one: a query to describe, or words to"
        " look for.",
        show_default=False,
        metavar="[DATASET|NAME|WORD]",
        autocompletion=completes("query"),
    ),
]
Name = Annotated[
    str | None,
    typer.Argument(
        help="Query such as reuse/summary, or a .sql file.",
        metavar="[NAME]",
        show_default=False,
        autocompletion=completes("query"),
    ),
]
Params = Annotated[
    list[str] | None, typer.Option("-p", "--param", help="NAME=VALUE; repeat for more.")
]
OutputFile = Annotated[
    Path | None, typer.Option("-o", "--output", help="File to write, - for stdout [stdout].")
]
Folders = Annotated[
    list[Path] | None,
    typer.Option("--queries", help="Folder of queries to add; repeat for more."),
]
STDOUT = Path("-")


def query(
    dataset: Dataset = None,
    name: Name = None,
    param: Params = None,
    sql: Annotated[str | None, typer.Option(help="Run this SELECT instead.")] = None,
    queries: Folders = None,
    describe: Annotated[
        bool, typer.Option("--describe", help="Say what the query means; run nothing.")
    ] = False,
    show_sql: Annotated[
        bool, typer.Option("--show-sql", help="Print the SQL for the duckdb CLI.")
    ] = False,
    mode: Annotated[
        Mode | None, typer.Option(help="How to write the result [table, or as -o is named].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --mode json.")] = False,
    output: OutputFile = None,
    limit: Annotated[int | None, typer.Option(min=0, help="The first rows only.")] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, help="Seconds that it may take [own SQL: 600].")
    ] = None,
    llm: opt.Llm = None,
    kv_dtype: opt.KvDtype = None,
    config: opt.Config = None,
) -> None:
    """Run a query over a dataset; without a dataset, list and describe the queries.

    A query of your own is a .sql file, --sql, or a folder of files (--queries): one SELECT over
    the tables, which can read nothing else and change nothing.

    \b
    Examples:
      kvtrace query
      kvtrace query capacity
      kvtrace query reuse/capacity_curve
      kvtrace query reports/chat reuse/capacity_curve -p capacities=1000,10000 --llm Llama-3.1-70B
      kvtrace query reports/chat reuse/over_time -o reuse.csv
      kvtrace query reports/chat mine.sql -p bound=1000
      kvtrace query reports/chat reuse/summary --show-sql > summary.sql
    """
    from kvtrace import api

    given = _parse_params(param or [])
    folders = queries or []
    chosen = _mode(mode, as_json, output)
    if sql is not None:
        _check_own(name, is_shown=show_sql or describe)
    if dataset is None or (name is None and sql is None):
        _look_up(dataset, folders, chosen, given if show_sql else None)
        return
    if describe and name is not None:
        _describe(name, folders, chosen)
        return
    settings = opt.settings_from(config, llm=llm, kv_dtype=kv_dtype)
    if show_sql and name is not None:
        shown = api.show_sql(name, given, dataset=dataset, folders=folders, settings=settings)
        result(shown)
        return
    table = api.query(
        dataset,
        name,
        params=given,
        sql=sql,
        folders=folders,
        limit=limit,
        timeout_s=timeout,
        settings=settings,
    )
    for one in table.notes:
        note(f"note: {one}")
    _write(table, chosen, output)


def _check_own(name: str | None, *, is_shown: bool) -> None:
    """Refuse what makes no sense beside --sql."""
    if name is not None:
        raise UsageError(
            "KVT-U014", f"both `{name}` and --sql are given", hint="give one of them at a time"
        )
    if is_shown:
        raise UsageError(
            "KVT-U017",
            "--sql is the SQL itself: there is nothing to show or to describe",
            hint="leave out --show-sql and --describe to run it",
        )


def _look_up(
    word: str | None, folders: list[Path], mode: ModeName, shown: dict[str, str] | None
) -> None:
    """What is asked for without a dataset: one query, or a list of them."""
    from kvtrace import api

    asked = word or ""
    if word is not None and api.is_dataset(word):
        raise _nothing_to_run(word, folders)
    if word is not None and api.has_query(word, folders=folders):
        if shown is not None:
            result(api.show_sql(word, shown, folders=folders))
        else:
            _describe(word, folders, mode)
        return
    lines = api.list_queries(asked, folders=folders, width=opt.screen_width())
    if not lines or shown is not None:
        raise _nothing_to_run(asked, folders)
    result(api.query_index(asked, folders=folders) if mode == "json" else "\n".join(lines))


def _describe(name: str, folders: list[Path], mode: ModeName) -> None:
    from kvtrace import api

    found = api.describe_query(name, folders=folders)
    result(found.to_json() if mode == "json" else found.to_text(opt.screen_width()))


def _mode(mode: Mode | None, as_json: bool, output: Path | None) -> ModeName:
    """The mode as stated, else as the name of the output says, else a table."""
    from kvtrace.api.querymodes import MODE_OF_SUFFIX

    if as_json and mode not in (None, Mode.JSON):
        raise UsageError(
            "KVT-U015",
            f"both --json and --mode {mode} are given",
            hint=f"leave one of them out: `--mode {mode}`",
        )
    if as_json:
        return "json"
    if mode is not None:
        return mode.value
    return "table" if output is None else MODE_OF_SUFFIX.get(output.suffix.lower(), "table")


def _write(table: QueryTable, mode: ModeName, output: Path | None) -> None:
    """The result in a file, else on stdout; bytes never go to a terminal."""
    from kvtrace.api.outputs import write_output

    is_stdout = output is None or output == STDOUT
    if mode == "parquet" and (output is None or (is_stdout and sys.stdout.isatty())):
        raise UsageError(
            "KVT-U016",
            "Parquet is not text: it needs a file",
            hint=f"`-o {table.name.rpartition('/')[2]}.parquet`, or `-o - | …`",
        )
    if output is not None and not is_stdout:
        write_output(output, table.rendered(mode))
        return
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    sys.stdout.buffer.write(table.rendered(mode, width=width))


def _nothing_to_run(dataset: str, folders: list[Path]) -> UsageError:
    from kvtrace import api

    if Path(dataset).exists():
        hint = f"name one, as `kvtrace query {dataset} reuse/summary`; `kvtrace query` lists all"
        return UsageError("KVT-U010", f"no query is named to run over `{dataset}`", hint=hint)
    close = api.close_queries(dataset, folders=folders)
    if close:
        hint = "did you mean " + " or ".join(f"`{one}`" for one in close)
        return UsageError("KVT-U013", f"no folder and no query is called `{dataset}`", hint=hint)
    return UsageError(
        "KVT-U013",
        f"there is no folder `{dataset}`, and no query is called or about that",
        hint="the output folder of `kvtrace analyze` comes first: "
        "`kvtrace query reports/NAME reuse/summary`; `kvtrace query` lists all",
    )


def _parse_params(texts: list[str]) -> dict[str, str]:
    parsed = {}
    for text in texts:
        name, found, value = text.partition("=")
        if not found or not name:
            raise UsageError("KVT-U011", f"`{text}` is not NAME=VALUE", hint="-p capacities=1000")
        parsed[name.strip()] = value.strip()
    return parsed
