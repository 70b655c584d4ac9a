"""`kvtrace ingest`: from logs to a dataset."""

from __future__ import annotations

from kvtrace.cli import options as opt
from kvtrace.cli.progress import make_progress
from kvtrace.cli.voice import result


def ingest(
    inputs: opt.Inputs,
    output: opt.Output = None,
    config: opt.Config = None,
    tz: opt.Tz = None,
    year: opt.Year = None,
    block_size: opt.BlockSize = None,
    max_reject_rate: opt.MaxRejectRate = None,
    allow_inert_pickle: opt.AllowInertPickle = None,
    tokenizer: opt.Tokenizer = None,
    bytes_per_token: opt.BytesPerToken = None,
    hash_prompts: opt.HashPrompts = None,
    mapping: opt.Mapping = None,
    salt: opt.Salt = None,
    as_json: opt.Json = False,
) -> None:
    """Read logs into a dataset of Parquet tables, with every lost row counted.

    \b
    Examples:
      kvtrace ingest logs/ -o reports/chat
      kvtrace ingest 'logs/*.gz' --tz Europe/Berlin --json
    """
    from kvtrace import api

    settings = opt.settings_from(
        config,
        tz=tz,
        year=year,
        block_size=block_size,
        max_reject_rate=max_reject_rate,
        allow_inert_pickle=allow_inert_pickle,
        tokenizer=tokenizer,
        bytes_per_token=bytes_per_token,
        hash_prompts=hash_prompts,
        mapping=mapping,
        salt=salt,
    )
    outcome = api.ingest(inputs, output=output, settings=settings, progress=make_progress())
    result(outcome.to_json() if as_json else "\n".join(outcome.summary()))
