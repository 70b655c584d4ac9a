"""SGLang's request dumps and crash dumps: a pickle of the last requests with their token ids.

Read from the sources of SGLang 0.4.3 to 0.5.23: `{"server_args": …, "requests": [(request, answer,
created, finished), …]}`. A pickle may run code, so it is opened only with `--allow-inert-pickle`,
and then by a process that imports nothing.
"""

from __future__ import annotations

import re
from typing import Final

from kvtrace.ingest.contract import Format, Guess, Head
from kvtrace.ingest.formats.sglang_dump.reader import read_dump
from kvtrace.units import MIB

_START: Final = re.compile(r".{0,40}server_args", re.DOTALL)
_MAX_DUMP_BYTES: Final = 512 * MIB


def _sniff(head: Head) -> Guess | None:
    """A pickled dict whose first key is `server_args`; the caller knows that it is a pickle."""
    is_text = head.json_objects or head.text[:1] in "[0123456789"
    if is_text or _START.match(head.text) is None or "\n[" in head.text[:200]:
        return None
    return Guess(0.9, "a pickled dict that starts with `server_args`, as SGLang dumps requests")


FORMATS: tuple[Format, ...] = (
    Format(
        name="sglang_dump",
        title="SGLang request or crash dump (pickle, read inert)",
        framing="document",
        best_grade="A",
        supplies=(
            "request_id",
            "session_id",
            "llm",
            "adapter",
            "arrived_at_ns",
            "prompt_tokens",
            "cached_tokens",
            "cached_device_tokens",
            "cached_host_tokens",
            "cached_disk_tokens",
            "cached_remote_tokens",
            "output_tokens",
            "queue_ns",
            "ttft_ns",
            "tpot_ns",
            "e2e_ns",
            "status",
            "block_keys",
        ),
        missing={
            "requests": "kvtrace analyze --allow-inert-pickle PATH (a pickle is a program; it is"
            " read without running it)",
            "reuse": "clients that send input_ids; of requests sent as text, --kv-events-config",
            "tier_split": "SGLang 0.5.10 or newer with --enable-cache-report"
            " (cached_tokens_details)",
            "ttft": "--enable-metrics, which puts times into meta_info",
        },
        versions="SGLang 0.4.3 to 0.5.23 (dump_requests, crash dump)",
        sniff=_sniff,
        read=read_dump,
        enable_hint='POST /configure_logging {"dump_requests_folder": "DIR"}, or'
        " --crash-dump-folder DIR; then kvtrace analyze --allow-inert-pickle",
        max_record_bytes=_MAX_DUMP_BYTES,
    ),
)
