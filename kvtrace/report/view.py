"""What the templates show: tables, charts and quantities, ready as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kvtrace.audit.record import Basis, Cell, Quantity, Table
from kvtrace.report.format import (
    Scale,
    exact_value,
    format_in,
    format_interval,
    format_value,
    is_count,
    pick_scale,
    safe_text,
)
from kvtrace.report.headings import heading
from kvtrace.report.texts import Texts

MAX_ROWS: Final = 200
"""Most rows of one table in the page; audit.json and the query have them all."""
MIN_REPEATED: Final = 3
"""Fewest rows in which one value is a repetition."""
MAX_ID: Final = 36
"""Longest identifier that a table keeps on one line."""
Origin = Literal["measured", "computed", "modelled"]
_UNIT_SUFFIX: Final = re.compile(r"_(ns|us|ms|s|bytes_per_s)$")
_ORIGIN_IN_TITLE: Final = re.compile(r" \((modelled|measured|computed)\)$")
_STEPPED: Final = ("bucket", "capacity")
"""Columns of bounds that double or grow tenfold: each in the unit in which it is round. Rows of
different metrics do not compare either."""
_TEXT_UNITS: Final = ("name", "names", "flag", "text", "keyed hash", "hash")


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell: None as text means unknown."""

    text: str | None
    exact: str
    kind: Literal["num", "id", "text"]
    """How it is set: a number, an identifier on one line, or prose."""
    indent: int = 0
    """How deep it stands in a tree."""


@dataclass(frozen=True, slots=True)
class Head:
    """One column."""

    name: str
    unit: str
    meaning: str
    is_number: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """A table as shown."""

    anchor: str
    title: str
    origin: Origin
    source: str
    """The query's name, or what made it."""
    is_query: bool
    heads: tuple[Head, ...]
    rows: tuple[tuple[CellView, ...], ...]
    row_count: int
    """Rows that there are, shown or not."""
    has_unknown: bool

    @property
    def constant(self) -> tuple[int, ...]:
        """Columns that hold one value in all of several rows: said once instead of drawn."""
        if len(self.rows) < MIN_REPEATED or self.row_count > len(self.rows):
            return ()
        return tuple(
            i
            for i in range(1, len(self.heads))
            if len({(row[i].text, row[i].exact) for row in self.rows}) == 1
        )

    @property
    def varying(self) -> tuple[int, ...]:
        """The other columns."""
        constant = frozenset(self.constant)
        return tuple(i for i in range(len(self.heads)) if i not in constant)


@dataclass(frozen=True, slots=True)
class ChartView:
    """A figure with its sentence and its table; without data, only the reason."""

    id: str
    title: str
    origin: Origin
    summary: str = ""
    figure: str | None = None
    """JSON of data and layout."""
    table: TableView | None = None
    origin_too: Origin | None = None
    """A second origin, where some of its series are of another kind."""
    is_wide: bool = False
    """Has panels side by side: on a small screen it scrolls inside its box."""
    missing: str | None = None
    """One sentence: why there is no figure, and what would supply it."""


@dataclass(frozen=True, slots=True)
class QuantityView:
    """A number that carries weight."""

    id: str
    title: str
    text: str | None
    interval: str | None
    interval_reason: str
    source: str
    kind: str
    origin: str
    is_confirmed: bool
    state: str | None
    """Who stands behind an assumption, as a key of the texts `state.*`."""
    dot: float | None
    """Place of the value between low and high, 0..100."""
    zero: float | None
    """Place of zero on the same line, if it lies inside."""


def slug(value: str) -> str:
    """`value` as part of an anchor."""
    return re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-") or "x"


def label_of(column: str) -> str:
    """A column's name for people: no underscores, no unit suffix (cells carry the unit)."""
    return safe_text(_UNIT_SUFFIX.sub("", column).replace("_", " "), limit=60)


def title_of(id: str) -> str:
    """A quantity's id for people; what stands behind a colon is what it is of."""
    idea, _, subject = id.partition(":")
    return f"{label_of(idea)} ({safe_text(subject, limit=60)})" if subject else label_of(idea)


def named(id: str, texts: Texts) -> str:
    """A quantity's id in the language of the page; English ones are the id without underscores."""
    if texts.lang == "en":
        return title_of(id)
    idea, _, subject = id.partition(":")
    words = heading(texts, idea, "")
    return f"{words}（{safe_text(subject, limit=60)}）" if subject else words


_ORIGINS: Final[Mapping[Basis, Origin]] = {
    "measured": "measured",
    "idealised": "computed",
    "modelled": "modelled",
}


def _origin_of(table: Table, stated: Origin | None) -> Origin:
    """As the page states it, but a model stays one; else by what the table rests on."""
    if table.is_modelled or table.basis == "modelled":
        return "modelled"
    return stated or _ORIGINS[table.basis]


def table_view(table: Table, *, source: str = "", origin: Origin | None = None) -> TableView:
    """A table of the record; `source` names its maker where no query did."""
    heads = tuple(
        Head(
            safe_text(name),
            unit,
            safe_text(meaning),
            _is_number(table, index),
        )
        for index, (name, unit, meaning) in enumerate(
            zip(table.columns, table.units, table.meanings, strict=True)
        )
    )
    scales = [_column_scale(table, index) for index in range(len(heads))]
    rows = tuple(
        tuple(
            _cell(value, head, _unit_of(table, row, head.unit), scale)
            for value, head, scale in zip(row, heads, scales, strict=True)
        )
        for row in table.rows[:MAX_ROWS]
    )
    return TableView(
        anchor=f"table-{slug(table.id)}",
        title=plain_title(table.title),
        origin=_origin_of(table, origin),
        source=safe_text(table.query or source),
        is_query=table.query is not None,
        heads=heads,
        rows=rows,
        row_count=max(table.truncated_from or 0, len(table.rows)),
        has_unknown=any(cell.text is None for row in rows for cell in row),
    )


def plain_title(title: str) -> str:
    """A table's title without the origin that a badge beside it says."""
    return _ORIGIN_IN_TITLE.sub("", safe_text(title))


def _column_scale(table: Table, index: int) -> Scale | None:
    """One unit for the whole column, and one family of byte units for the whole table.

    Where sizes are compared with what is held (buckets of KV bytes), all bytes are powers of two.
    """
    name, unit = table.columns[index], table.units[index]
    if any(word in name for word in _STEPPED) or "metric" in table.columns:
        return None
    held = table.id.startswith("kv/") or any("bytes_bucket" in one for one in table.columns)
    cells = [row[index] for row in table.rows[:MAX_ROWS]]
    return pick_scale(unit, cells, name="" if held and unit in ("bytes", "B") else name)


def _is_number(table: Table, index: int) -> bool:
    if table.units[index] in _TEXT_UNITS:
        return False
    return not any(isinstance(row[index], str) for row in table.rows[:MAX_ROWS])


def _unit_of(table: Table, row: Sequence[Cell], unit: str) -> str:
    """The unit of a cell; a unit in backticks names the column that holds it."""
    column = unit.strip("`")
    if column != unit and column in table.columns:
        return str(row[table.columns.index(column)] or "")
    return "" if unit in _TEXT_UNITS else unit


def _cell(value: Cell, head: Head, unit: str, scale: Scale | None) -> CellView:
    if scale is not None:
        return CellView(format_in(value, scale), exact_value(value), "num")
    text = format_value(value, "" if unit == head.unit and is_count(unit) else unit, name=head.name)
    kind: Literal["num", "id", "text"] = "num" if head.is_number else "text"
    if not head.is_number and text is not None and len(text) <= MAX_ID and _is_one_word(text):
        kind = "id"
    return CellView(text, exact_value(value), kind)


def _is_one_word(text: str) -> bool:
    """Whether it is a name rather than words; Chinese is written without spaces."""
    return " " not in text and text.isascii()


def made_table(
    id: str, title: str, columns: Sequence[tuple[str, str, str]], rows: list[list[Cell]]
) -> Table:
    """A table of figures that stand elsewhere in the record; columns are (name, unit, meaning)."""
    return Table(
        id=id,
        title=title,
        query=None,
        columns=[name for name, _, _ in columns],
        units=[unit for _, unit, _ in columns],
        meanings=[meaning for _, _, meaning in columns],
        rows=rows,
    )


def quantity_view(quantity: Quantity, texts: Texts) -> QuantityView:
    """A quantity with its interval, or with the reason why it has none."""
    unit = "" if quantity.unit in _TEXT_UNITS else quantity.unit
    text, interval = _in_one_unit(quantity, unit)
    reason = texts("quantity.equal_ends") if interval == text else ""
    if interval == text:
        interval = None
    return QuantityView(
        id=quantity.id,
        title=safe_text(quantity.title) or named(quantity.id, texts),
        text=text,
        interval=interval,
        interval_reason=safe_text(quantity.interval_reason)
        or reason
        or texts("quantity.no_interval"),
        source=safe_text(quantity.source),
        kind=texts.or_code("kind", quantity.kind),
        origin=safe_text(quantity.origin),
        is_confirmed=quantity.is_confirmed,
        state=quantity.origin_state,
        dot=_place(quantity.value, quantity),
        zero=_place(0.0, quantity, inside_only=True),
    )


def _in_one_unit(quantity: Quantity, unit: str) -> tuple[str | None, str | None]:
    """The value and its interval, in the unit of the largest of them."""
    ends = (quantity.low, quantity.high)
    scale = pick_scale(unit, (quantity.value, *ends), name=quantity.id)
    if scale is None or isinstance(quantity.value, str | None):
        interval = format_interval(*ends, quantity.unit, name=quantity.id)
        return format_value(quantity.value, unit, name=quantity.id), interval
    text = format_in(quantity.value, scale)
    low, high = (format_in(end, scale) for end in ends)
    if low is None or high is None:
        return format_value(quantity.value, unit, name=quantity.id), None
    return text, low if low == high else f"{low} – {high}"


def _place(value: Cell, quantity: Quantity, *, inside_only: bool = False) -> float | None:
    """Where `value` stands on the drawn line from low to high, 0..100."""
    low, high = quantity.low, quantity.high
    if low is None or high is None or not isinstance(value, int | float) or high <= low:
        return None
    place = 100.0 * (value - low) / (high - low)
    if inside_only and not 0.0 < place < 100.0:
        return None
    return round(min(100.0, max(0.0, place)), 2)
