"""The questions about money: does it pay back, what is paid for, and what tokens cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvtrace.audit.money.record import ApiPrice, Economics, OptionBill, PoolOverRival
from kvtrace.audit.quantity import Quantity
from kvtrace.audit.record import AuditRecord, Cell, Table
from kvtrace.report.format import format_value, safe_text
from kvtrace.report.questions.part import Part, absent_part
from kvtrace.report.texts import Texts
from kvtrace.report.view import TableView, made_table, quantity_view, table_view

_NUMBERS: Final = (("number", "text"), ("value", ""), ("low", ""), ("high", ""), ("source", "text"))
_TOTALS: Final = (
    *(("option", "name"), ("usd_per_month", "USD/month"), ("low_usd_per_month", "USD/month")),
    *(("high_usd_per_month", "USD/month"), ("capex_usd", "USD")),
    *(("idle_dram_at_cost_usd_per_month", "USD/month"), ("kwh_per_month", "kWh/month")),
    ("kg_co2e_per_month", "kgCO2e/month"),
)
_LINES: Final = (
    *(("line", "text"), ("quantity", ""), ("unit", "name"), ("unit_price", "text")),
    *(("capex_usd", "USD"), ("usd_per_month", "USD/month"), ("low_usd_per_month", "USD/month")),
    *(("high_usd_per_month", "USD/month"), ("note", "text")),
)
_PRICES: Final = (
    *(("price", "text"), ("value", "text"), ("low", "text"), ("high", "text")),
    *(("confirmed", "text"), ("source", "text")),
)
_TOKENS: Final = (
    *(("option", "name"), ("uncached_usd_per_million", "USD"), ("cached_usd_per_million", "USD")),
    *(("mean_usd_per_million", "USD"), ("mean_low", "USD"), ("mean_high", "USD")),
)


def economics_parts(record: AuditRecord, texts: Texts) -> tuple[Part, ...]:
    """All of them; none for a record without money."""
    money = record.economics
    if money is None or not money.bills:
        return ()
    return (_payback(money, texts), _bills(money, texts), _tokens(money, texts))


def _payback(money: Economics, texts: Texts) -> Part:
    contract = _contract(money, texts)
    case = money.case
    if case is None:
        part = absent_part("payback", texts)
        return Part(part.id, part.title, sentences=(contract, part.missing or ""))
    pair = {"pool": safe_text(case.title), "rival": safe_text(case.rival_title)}
    amounts = {
        "saving": _shown(case.saving, texts),
        "cost": _shown(case.extra_cost, texts),
        "npv": _shown(case.npv, texts),
    }
    sentences = [
        texts("q.payback.saves", **pair, **amounts),
        contract,
        _or_why("q.payback.months", case.payback, texts),
        texts("q.payback.npv", **amounts),
        _or_why("q.payback.gpu", case.gpu_usd_per_hour, texts),
        _or_why("q.payback.dram", case.dram_usd_per_gb, texts),
    ]
    return Part(
        "payback",
        texts("q.payback.title"),
        sentences=tuple(sentences),
        folded=(_numbers(case, money, texts),),
    )


def _contract(money: Economics, texts: Texts) -> str:
    share = None if money.hours_share is None else format_value(money.hours_share.value, "ratio")
    key = f"q.payback.{money.contract}"
    if money.contract == "elastic" and share is None:
        key = "q.payback.elastic_all"
    if money.contract == "reserved" and money.paid_until in (None, "never"):
        key = "q.payback.reserved_over" if money.paid_until is None else "q.payback.reserved_open"
    sentence = texts(
        key,
        instance=_shown(money.instance, texts),
        share=share or "",
        until=safe_text(money.paid_until or ""),
    )
    return sentence if money.is_contract_confirmed else f"{sentence} {texts('q.payback.assumed')}"


def _shown(quantity: Quantity, texts: Texts) -> str:
    view = quantity_view(quantity, texts)
    if view.text is None:
        return texts("unknown")
    return f"{view.text} ({view.interval})" if view.interval else view.text


def _or_why(key: str, quantity: Quantity, texts: Texts) -> str:
    """The number in its sentence, or the reason why there is none."""
    if quantity.value is None:
        return texts(f"{key}_none", why=safe_text(quantity.interval_reason))
    shown = _shown(quantity, texts)
    if quantity.high is None and quantity.interval_reason:
        shown = f"{shown} ({safe_text(quantity.interval_reason)})"
    return texts(key, value=shown)


def _numbers(case: PoolOverRival, money: Economics, texts: Texts) -> TableView:
    quantities = (
        *(case.saving, case.extra_cost, case.payback, case.npv),
        *(case.gpu_usd_per_hour, case.dram_usd_per_gb, money.instance),
    )
    rows: list[list[Cell]] = [
        [
            one.title,
            *(format_value(cell, one.unit) for cell in (one.value, one.low, one.high)),
            one.source,
        ]
        for one in quantities
    ]
    return _table("economics/payback", "q.payback.table", _NUMBERS, rows, texts)


def _bills(money: Economics, texts: Texts) -> Part:
    weighed = None if money.case is None else money.case.option
    bills = [bill for bill in money.bills if bill.items or bill.idle_dram_at_cost is not None]
    gaps = [f"{bill.title}: {gap}" for bill in bills for gap in bill.gaps]
    first = [bill for bill in bills if bill.option == weighed]
    others = [bill for bill in bills if bill.option != weighed and bill.items]
    return Part(
        "bills",
        texts("q.bills.title"),
        sentences=(texts("q.bills.answer"),),
        points=tuple(safe_text(gap) for gap in gaps),
        points_title=texts("q.bills.gaps") if gaps else "",
        short=(_totals(bills, texts), *(_lines(bill, texts) for bill in first)),
        folded=(*(_lines(bill, texts) for bill in others), _prices(bills, texts)),
    )


def _prices(bills: Sequence[OptionBill], texts: Texts) -> TableView:
    """Every unit price of the bills, once, with its source and date."""
    found = {item.price.id: item.price for bill in bills for item in bill.items}
    rows: list[list[Cell]] = [
        [
            price.title,
            *(format_value(cell, price.unit) for cell in (price.value, price.low, price.high)),
            texts("options.yes" if price.is_confirmed else "options.no"),
            price.source,
        ]
        for price in found.values()
    ]
    return _table("economics/prices", "q.bills.prices", _PRICES, rows, texts)


def _totals(bills: Sequence[OptionBill], texts: Texts) -> TableView:
    rows: list[list[Cell]] = [
        [
            bill.title,
            *(bill.total.value, bill.total.low, bill.total.high, bill.capex.value),
            None if bill.idle_dram_at_cost is None else bill.idle_dram_at_cost.value,
            *(bill.energy.value, bill.emissions.value),
        ]
        for bill in bills
    ]
    return _table("economics/bills", "q.bills.totals", _TOTALS, rows, texts)


def _lines(bill: OptionBill, texts: Texts) -> TableView:
    rows: list[list[Cell]] = [
        [
            item.title,
            *(item.quantity, item.unit, _price(item.price, texts)),
            *(item.capex_usd, item.capex_usd_per_month + item.opex_usd_per_month),
            *(item.low_usd_per_month, item.high_usd_per_month, item.note or "–"),
        ]
        for item in bill.items
    ]
    title = texts("q.bills.lines", option=safe_text(bill.title))
    made = _made(f"economics/bill/{bill.option}", title, _LINES, rows, texts)
    return table_view(made, source=texts("q.bills.source"), origin="modelled")


def _price(price: Quantity, texts: Texts) -> str:
    shown = _shown(price, texts)
    return shown if price.is_confirmed else f"{shown} {texts('q.bills.unconfirmed')}"


def _tokens(money: Economics, texts: Texts) -> Part:
    if not money.tokens:
        return absent_part("tokens", texts)
    rows: list[list[Cell]] = [
        [
            row.title,
            *(row.uncached.value, row.cached.value, row.mean.value, row.mean.low, row.mean.high),
        ]
        for row in money.tokens
    ]
    return Part(
        "tokens",
        texts("q.tokens.title"),
        sentences=(texts("q.tokens.answer"),),
        points=tuple(_api(one, texts) for one in money.api_prices),
        points_title=texts("q.tokens.apis"),
        short=(_table("economics/tokens", "q.tokens.table", _TOKENS, rows, texts),),
    )


def _api(price: ApiPrice, texts: Texts) -> str:
    return texts(
        "q.tokens.api",
        api=safe_text(price.title),
        uncached=format_value(price.uncached_usd_per_million, "USD"),
        cached=format_value(price.cached_usd_per_million, "USD"),
        as_of=safe_text(price.as_of),
        source=safe_text(price.source),
    )


def _table(
    id: str,
    title: str,
    columns: Sequence[tuple[str, str]],
    rows: list[list[Cell]],
    texts: Texts,
) -> TableView:
    made = _made(id, texts(title), columns, rows, texts)
    return table_view(made, source=texts("q.bills.source"), origin="modelled")


def _made(
    id: str, title: str, columns: Sequence[tuple[str, str]], rows: list[list[Cell]], texts: Texts
) -> Table:
    named = [(name, unit, texts(f"q.bills.column.{name}")) for name, unit in columns]
    return made_table(id, title, named, rows)
