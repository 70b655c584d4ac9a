"""`kvtrace init`: a fleet file, guessed from logs, asked on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvtrace.cli import options as opt
from kvtrace.cli.progress import make_progress
from kvtrace.cli.voice import result
from kvtrace.errors import UsageError

if TYPE_CHECKING:
    from kvtrace.cost.fleet.draft import Entry, FleetDraft

_ASKED = (
    *("instances.count", "instances.tp", "gpu_nodes.gpus", "gpu_nodes.dram_free"),
    *("gpu_nodes.nvme_free", "network.is_built", "network.compute_kv_share", "pool.nodes"),
    *("pool.dram", "pool.ports_per_node", "gpu_contract.kind", "gpu_contract.until"),
    *("releases.days_between", "redundancy.spare_instances", "tenants.sharing", "slo.ttft"),
    *("load.peak_factor", "prices.gpu_usd_per_hour", "prices.operations_fte_share"),
)
"""What decides most; the rest stands in the file with its default."""
_HOW = (
    "Enter keeps what stands in brackets as it is, `y` confirms it, anything else replaces it. "
    "What you do not know stays marked as unconfirmed."
)


def init(
    source: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Logs, an output folder, or an audit.json.", metavar="[LOGS|DATASET|AUDIT]"
        ),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file.")] = Path("fleet.toml"),
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Ask nothing: what no log says stays unconfirmed.")
    ] = False,
    llm: opt.Llm = None,
    hardware: opt.Hardware = None,
    tp: opt.Tp = None,
    instances: opt.Instances = None,
    config: opt.Config = None,
    as_json: opt.Json = False,
) -> None:
    """Write a fleet file: what decides whether a pool pays and no log says.

    Each answer is guessed from the logs where they say it, and marked so; on a terminal the rest
    is asked. What nobody confirmed keeps the mark `# unconfirmed`, and stays highlighted in the
    report.

    \b
    Examples:
      kvtrace init logs/ -o fleet.toml
      kvtrace init reports/logs/audit.json --yes
      kvtrace analyze logs/ --fleet fleet.toml
    """
    from kvtrace.api.fleet_drafts import check_free, draft_fleet, write_draft

    path = check_free(output, force=force)
    settings = opt.settings_from(config, llm=llm, hardware=hardware, tp=tp, instances=instances)
    draft = draft_fleet(source or (), settings=settings, progress=make_progress())
    if not yes and sys.stdin.isatty() and sys.stderr.isatty():
        draft = _ask(draft)
    done = write_draft(draft, path)
    result(done.to_json() if as_json else "\n".join(done.summary()))


def _ask(draft: FleetDraft) -> FleetDraft:
    """The draft with the answers of the person at the terminal."""
    typer.echo(_HOW, err=True)
    for entry in draft.entries():
        if entry.key.path in _ASKED:
            draft = _ask_one(draft, entry)
    return draft


def _ask_one(draft: FleetDraft, entry: Entry) -> FleetDraft:
    """One question, again until the answer can be used."""
    from kvtrace.api.fleet_drafts import answer

    key, said = entry.key, entry.said
    standing = {"logs": ", from the logs", "unconfirmed": ", unconfirmed", "stated": ""}
    shown = "open" if said is None else f"{said.text}{standing[said.standing]}"
    while True:
        reply = typer.prompt(
            f"{key.path}: {key.meaning} [{shown}]", default="", show_default=False, err=True
        ).strip()
        if not reply:
            return draft
        if reply.lower() == "y" and said is not None:
            return draft.confirmed(key.path)
        try:
            return answer(draft, key.path, reply.strip("\"'"))
        except UsageError as error:
            typer.echo(f"  {error.cause or error.message}", err=True)
