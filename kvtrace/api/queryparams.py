"""What a dataset, its logs and the audit beside it know of the parameters that a query takes.

Nothing is guessed: what nobody said stays null, and what is taken is said, with who said it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kvtrace.api.opened import AUDIT_FILE, read_earlier, with_earlier
from kvtrace.api.pool_tables import fleet_bytes
from kvtrace.api.setup import FROM_LOGS, choose_deployment
from kvtrace.api.sized import sized_params
from kvtrace.api.sizing_params import held_bytes
from kvtrace.audit.record import AuditRecord
from kvtrace.config import Settings
from kvtrace.duckdb_session import Param
from kvtrace.errors import ModelError
from kvtrace.report.text.table import shown_cell
from kvtrace.schema.manifest import Manifest
from kvtrace.store.dataset import Dataset

KV_BYTES: Final = "kv_bytes_per_token"
BLOCK_SIZE: Final = "block_size_tokens"
HBM, DRAM, POOL = "hbm_bytes", "dram_bytes", "pool_bytes"
HELD: Final = "held_bytes"
"""What HBM and idle DRAM of all instances hold, copies counted once."""
_SIZED_BY: Final = {
    HBM: "instance.hbm_cache_bytes",
    DRAM: "fleet.dram_idle_bytes_per_instance",
    POOL: "fleet.pool_dram_bytes",
}
"""Sizes of tiers, and the assumptions of an audit that they follow from."""


@dataclass(frozen=True, slots=True)
class Known:
    """A parameter that nobody typed."""

    name: str
    value: Param
    why: str
    """What it was taken from."""

    def __str__(self) -> str:
        return f"{self.name} = {shown_cell(self.value)} ({self.why})"


def known_params(dataset: Dataset, wanted: Collection[str], settings: Settings) -> list[Known]:
    """Of the wanted parameters, those that are known; an LLM that somebody states comes first.

    The audit beside the dataset speaks where nobody states another LLM; sizes of tiers are its own.

    Raises:
        UsageError: the LLM that was stated is not known.
    """
    tiers = [name for name in _SIZED_BY if name in wanted]
    is_audited = settings["llm"].is_default and (KV_BYTES in wanted or tiers)
    earlier = read_earlier(dataset) if is_audited else None
    found = []
    if KV_BYTES in wanted:
        found.append(_bytes_per_token(dataset.manifest, settings, earlier))
    if BLOCK_SIZE in wanted:
        found.append(_block_size(dataset.manifest))
    if tiers and earlier is not None:
        found += _tiers(dataset.manifest, tiers, settings, earlier)
    if earlier is not None:
        found += _sized(dataset.manifest, wanted, settings, earlier)
    return [one for one in found if one is not None]


def _bytes_per_token(
    manifest: Manifest, settings: Settings, earlier: AuditRecord | None
) -> Known | None:
    if earlier is None:
        return _of_llm(manifest, settings)
    doubt = next((a for a in earlier.assumptions if a.id == "llm"), None)
    said = "" if doubt is None or doubt.is_confirmed else ", which nobody confirmed"
    why = f"{AUDIT_FILE}: {earlier.kv.llm}, {earlier.kv.kv_dtype}{said}"
    return Known(KV_BYTES, earlier.kv.bytes_per_token, why)


def _of_llm(manifest: Manifest, settings: Settings) -> Known | None:
    """From the LLM that somebody stated, else from the one that the logs name."""
    try:
        deployment, chosen = choose_deployment(settings, manifest)
    except ModelError:  # its weights do not fit the GPUs: its KV is the same on any
        return None
    llm, dtype = chosen["llm"], chosen["kv_dtype"]
    if llm.is_default:
        return None
    said = "the logs" if llm.origin == FROM_LOGS else llm.origin
    why = f"{llm.value} from {said}, {dtype.value} from {dtype.origin}"
    return Known(KV_BYTES, deployment.kv_bytes_per_token_unreplicated, why)


def _tiers(
    manifest: Manifest, wanted: Collection[str], settings: Settings, earlier: AuditRecord
) -> list[Known]:
    """Sizes of the tiers of all instances, of one copy of the KV, as the audit took them.

    Whole blocks of each instance, as the audit counts them; the pool as is.
    """
    try:
        deployment, _ = choose_deployment(with_earlier(settings, earlier), manifest)
    except ModelError:  # its weights do not fit: no instance has a size
        return []
    stated = {one.id: one.value for one in earlier.assumptions}
    instances = stated.get("instances")
    block_tokens = manifest.totals.block_size_tokens or 1
    found = []
    for name in wanted:
        size = stated.get(_SIZED_BY[name])
        if isinstance(size, int | float) and isinstance(instances, int) and size:
            in_all = (
                float(size)
                if name == POOL
                else fleet_bytes(size, deployment, instances=instances, block_tokens=block_tokens)
            )
            found.append(Known(name, in_all, f"{AUDIT_FILE}: {_SIZED_BY[name]}"))
    return found


def _sized(
    manifest: Manifest, wanted: Collection[str], settings: Settings, earlier: AuditRecord
) -> list[Known]:
    """Prices, the worth of a token, and what HBM and idle DRAM hold, as the audit took them."""
    known = {name: value for name, value in sized_params(earlier).items() if name in wanted}
    if HELD in wanted:
        above = _tiers(manifest, (HBM, DRAM), settings, earlier)
        sizes = [float(one.value) for one in above if isinstance(one.value, int | float)]
        known |= {HELD: held_bytes(sizes)} if sizes else {}
    return [Known(name, value, f"{AUDIT_FILE}: sizes") for name, value in known.items()]


def _block_size(manifest: Manifest) -> Known | None:
    """Of the blocks in the dataset; without blocks, what an engine's log states, if all agree."""
    size = manifest.totals.block_size_tokens
    if size:
        return Known(BLOCK_SIZE, size, "the blocks of the dataset")
    if manifest.domains:
        return None
    stated = {
        value
        for source in manifest.sources
        if isinstance(value := source.engine_facts.get("block_size"), int) and value > 0
    }
    return Known(BLOCK_SIZE, stated.pop(), "the engine's log") if len(stated) == 1 else None
