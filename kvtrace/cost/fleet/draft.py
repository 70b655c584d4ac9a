"""A fleet file to be filled in: every answer with who gave it, as a text that reads back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kvtrace.cost.evidence import Constant
from kvtrace.cost.fleet.file import FROM_LOGS, UNCONFIRMED, FleetFile, Standing
from kvtrace.cost.fleet.fleet import Fleet
from kvtrace.cost.fleet.keys import SECTIONS, Key, fleet_keys
from kvtrace.cost.fleet.values import read_value
from kvtrace.units import GB, GIB, MB, MIB, TB, TIB

_PRICES: Final = (
    "gpu_usd_per_hour",
    "dram_usd_per_gb",
    "operations_fte_share",
    "fte_usd_per_year",
    "financing_rate_per_year",
    "amortisation_months",
)
"""Prices that a draft states; any other name of data/prices.toml may be added."""
_BYTE_UNITS: Final = (("TiB", TIB), ("GiB", GIB), ("TB", TB), ("GB", GB), ("MiB", MIB), ("MB", MB))
_BITS: Final = 8
_REMARK: Final = 44
"""Column in which remarks begin, where the line leaves room."""


@dataclass(frozen=True, slots=True)
class Said:
    """One answer."""

    text: str
    """As it stands in the file."""
    standing: Standing
    why: str = ""
    """Of the logs: what they say."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the draft, with its answer; null: left open, nothing is assumed."""

    key: Key
    said: Said | None


@dataclass(frozen=True, slots=True)
class FleetDraft:
    """A fleet with what is known of it."""

    fleet: Fleet
    """What stands in the file where nobody says anything else."""
    said: Mapping[str, Said] = field(default_factory=dict)
    """By path: what the logs or a person said."""
    absent: str = ""
    """A fleet file whose answers should be in here, and which is not at hand."""

    def entries(self) -> list[Entry]:
        """All keys of the file, in its order."""
        keys = fleet_keys()
        wanted = [key for key in keys.values() if key.section != "prices"]
        prices = [f"prices.{name}" for name in _PRICES]
        wanted += [keys[path] for path in prices]
        wanted += [keys[path] for path in self.said if path not in prices and "prices." in path]
        return [Entry(key, self._said(key)) for key in wanted]

    def answered(self, path: str, text: str) -> FleetDraft:
        """The draft with an answer of a person: a number, or a text with its unit.

        Raises:
            ValueError: it is none of what the key takes.
            UsageError: its unit is missing or unknown.
        """
        key = fleet_keys()[path]
        read_value(key, _parsed(key, text))
        return replace(self, said={**self.said, path: Said(_quoted(key, text), "stated")})

    def confirmed(self, path: str) -> FleetDraft:
        """The draft with what stands there confirmed by a person."""
        said = self._said(fleet_keys()[path])
        if said is None:
            return self
        return replace(self, said={**self.said, path: Said(said.text, "stated")})

    def count(self, standing: Standing) -> int:
        """Answers of this standing."""
        return sum(one.said is not None and one.said.standing == standing for one in self.entries())

    def text(self) -> str:
        """The file."""
        lines = [*_HEAD]
        section = ""
        for entry in self.entries():
            if entry.key.section != section:
                section = entry.key.section
                lines += ["", f"[{section}]  # {SECTIONS[section]}"]
            lines.append(_line(entry))
        return "\n".join(lines) + "\n"

    def _said(self, key: Key) -> Said | None:
        given = self.said.get(key.path)
        if given is not None:
            return given
        is_of_node_known = key.path.replace("instances.", "gpu_nodes.") in _PER_NODE
        if key.section == "instances" and is_of_node_known:
            return None
        if key.path in _PER_NODE and _PER_NODE[key.path] in self.said:
            return None
        value = _VALUES.get(key.path)
        text = None if value is None else value(self.fleet)
        return None if text is None else Said(text, "unconfirmed")


def said_in(file: FleetFile) -> dict[str, Said]:
    """What stands in a fleet file, but for the lines that nobody confirmed; its own texts."""
    return {
        path: Said(text, stated.standing, file.why(path))
        for path, stated in file.stated.items()
        if stated.standing != "unconfirmed" and (text := file.raw(path))
    }


_HEAD: Final = (
    "# What decides whether a pool pays and no log says. docs/settings.md explains every key.",
    f"# `# {UNCONFIRMED}`: an estimate of kvtrace. It counts, and stays marked to the end of the",
    "# report; take the remark away to confirm the line, or write your own value.",
)


def _line(entry: Entry) -> str:
    key, said = entry.key, entry.said
    if said is None:
        return _remarked(f"# {key.name} = {key.example}", f"open: {key.meaning}")
    line = f"{key.name} = {said.text}"
    if said.standing == "stated":
        return _remarked(line, key.meaning)
    if said.standing == "logs":
        return _remarked(line, f"{FROM_LOGS}: {said.why}")
    return _remarked(line, f"{UNCONFIRMED}: {key.meaning}")


def _remarked(line: str, remark: str) -> str:
    return f"{line:<{_REMARK}}  # {remark}" if remark else line


def _parsed(key: Key, text: str) -> object:
    """A typed answer as TOML would give it."""
    if key.reads in ("whole", "number", "share"):
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"`{text}` is not a number") from None
    if key.reads == "switch":
        known = {"true": True, "yes": True, "false": False, "no": False}
        return known.get(text.lower(), text)
    return text


def _quoted(key: Key, text: str) -> str:
    if key.reads in ("bytes", "rate", "duration", "word"):
        return f'"{text}"'
    if key.reads == "switch":
        return "true" if text.lower() in ("true", "yes") else "false"
    return text


def bytes_text(value: float) -> str:
    """Bytes as a quoted text that reads back to the same number."""
    for name, unit in _BYTE_UNITS:
        shown = f"{value / unit:.6g}"
        if value >= unit and float(shown) * unit == value:
            return f'"{shown}{name}"'
    return f'"{value:.0f}B"'


def rate_text(value: float) -> str:
    """A rate as a quoted text that reads back to the same number, or nearly."""
    shown = f"{value * _BITS / GB:.6g}"
    if float(shown) * GB / _BITS == value:
        return f'"{shown}Gb/s"'
    return f'"{value / GB:.9g}GB/s"'


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else repr(value)


_Shown = Callable[[Fleet], str | None]


def _plain(constant: Callable[[Fleet], Constant]) -> _Shown:
    return lambda fleet: _number(constant(fleet).value)


def _size(constant: Callable[[Fleet], Constant]) -> _Shown:
    return lambda fleet: bytes_text(constant(fleet).value)


def _of_node(constant: Callable[[Fleet], Constant]) -> _Shown:
    def shown(fleet: Fleet) -> str:
        whole = constant(fleet).value * fleet.gpus_per_node / fleet.gpus_per_instance
        return bytes_text(round(whole))

    return shown


_PER_NODE: Final = {
    "gpu_nodes.dram_free": "instances.dram_free",
    "gpu_nodes.nvme_free": "instances.nvme_free",
}
"""Room of a node, and the key that says it for an instance instead."""
_VALUES: Final[Mapping[str, _Shown]] = {
    "instances.count": lambda fleet: str(fleet.instances),
    "instances.pp": lambda _: "1",
    "instances.dp": lambda _: "1",
    "instances.below_hbm": lambda fleet: f'"{fleet.below_hbm.value}"',
    "gpu_nodes.gpus": lambda fleet: str(fleet.gpus_per_node),
    "gpu_nodes.dram_free": _of_node(lambda fleet: fleet.dram_idle_bytes_per_instance),
    "gpu_nodes.nvme_free": _of_node(lambda fleet: fleet.nvme_free_bytes_per_instance),
    "network.is_built": lambda fleet: str(fleet.network.is_built.value).lower(),
    "network.compute_ports": _plain(lambda fleet: fleet.network.compute_ports),
    "network.compute_port_rate": lambda fleet: rate_text(
        fleet.network.compute_port_bytes_per_s.value
    ),
    "network.compute_kv_share": _plain(lambda fleet: fleet.network.compute_kv_share),
    "network.storage_ports": _plain(lambda fleet: fleet.network.storage_ports),
    "network.storage_port_rate": lambda fleet: rate_text(
        fleet.network.storage_port_bytes_per_s.value
    ),
    "network.storage_kv_share": _plain(lambda fleet: fleet.network.storage_kv_share),
    "pool.nodes": _plain(lambda fleet: fleet.pool_nodes),
    "pool.dram": _size(lambda fleet: fleet.pool_dram_bytes),
    "pool.ports_per_node": _plain(lambda fleet: fleet.pool_nics_per_node),
    "pool.port_rate": lambda fleet: rate_text(fleet.pool_port_line_bytes_per_s),
    "pool.purchase": lambda fleet: f'"{fleet.pool_purchase.value}"',
    "pool.wire_today": lambda fleet: f'"{fleet.today_wire.value}"',
    "pool.cross_zone_share": _plain(lambda fleet: fleet.cross_zone_share),
    "pool.dram_rate": lambda fleet: f'"{fleet.pool_dram_bytes_per_s.value / GB:.9g}GB/s"',
    "gpu_contract.kind": lambda fleet: f'"{fleet.contract.kind.value}"',
    "releases.days_between": _plain(lambda fleet: fleet.release_days),
    "redundancy.spare_instances": _plain(lambda fleet: fleet.spare_instances),
    "redundancy.spare_pool_nodes": _plain(lambda fleet: fleet.spare_pool_nodes),
    "tenants.sharing": lambda fleet: f'"{fleet.sharing.value}"',
    "prices.gpu_usd_per_hour": _plain(lambda fleet: fleet.gpu_usd_per_hour),
    **{
        f"prices.{name}": _plain(lambda fleet, name=name: fleet.prices[name])  # type: ignore[misc]
        for name in _PRICES[1:]
    },
}
