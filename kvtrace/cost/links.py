"""Links and ports by the chunk law, from data/links.toml."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtrace.cost.evidence import Constant, read_constant, read_toml


@dataclass(frozen=True, slots=True)
class Link:
    """One link or port, by the chunk law."""

    link: str
    """Such as pcie5_x16 or rdma_400g."""
    peak_bytes_per_s: Constant
    max_bytes_per_s: Constant
    """What long chunks reach."""
    op_s: Constant
    """Seconds that each chunk costs besides its bytes."""
    latency_s: Constant

    def bytes_per_s(self, chunk_bytes: float) -> float:
        """Effective rate with chunks of `chunk_bytes`.

        Formula: c / (t_op + c / B_max).
        """
        return chunk_bytes / (self.op_s.value + chunk_bytes / self.max_bytes_per_s.value)

    def scaled(self, factor: float) -> Link:
        """The same link `factor` times as fast; its latency stays."""
        return replace(
            self,
            peak_bytes_per_s=self.peak_bytes_per_s.scaled(factor),
            max_bytes_per_s=self.max_bytes_per_s.scaled(factor),
            op_s=self.op_s.scaled(1 / factor),
        )

    def at_end(self, *, fast: bool) -> Link:
        """The same link with rate, fixed costs and latency at one end of their ranges."""
        return replace(
            self,
            max_bytes_per_s=self.max_bytes_per_s.at_end(high=fast),
            op_s=self.op_s.at_end(high=not fast),
            latency_s=self.latency_s.at_end(high=not fast),
        )

    def constants(self) -> tuple[Constant, ...]:
        """All numbers of the link."""
        return (self.peak_bytes_per_s, self.max_bytes_per_s, self.op_s, self.latency_s)


def load_link(name: str) -> Link:
    """A link of data/links.toml by its exact name."""
    entry = read_toml("links.toml")["links"][name]
    source, as_of = str(entry["source"]), str(entry["as_of"])

    def read(key: str, unit: str, title: str) -> Constant:
        raw = entry[key]
        table = raw if isinstance(raw, dict) else {"value": raw, "kind": "spec"}
        return read_constant(
            table,
            id=f"links.{name}.{key}",
            unit=unit,
            title=f"{name}: {title}",
            source=source,
            as_of=as_of,
        )

    return Link(
        link=name,
        peak_bytes_per_s=read("peak_bytes_per_s", "B/s", "line rate, a direction"),
        max_bytes_per_s=read("max_bytes_per_s", "B/s", "rate of long chunks"),
        op_s=read("op_s", "s", "fixed cost of a chunk"),
        latency_s=read("latency_s", "s", "latency"),
    )


def list_links() -> tuple[str, ...]:
    """Names of the built-in links."""
    return tuple(read_toml("links.toml")["links"])
