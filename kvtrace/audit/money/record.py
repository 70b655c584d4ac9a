"""Money as the record holds it: bills, what GPUs are worth, payback, prices at break-even."""

from __future__ import annotations

import msgspec

from kvtrace.audit.quantity import Quantity


class BillItem(msgspec.Struct, kw_only=True):
    """One line of a bill: quantity x unit price."""

    id: str
    title: str
    group: str
    """nodes | dram | ssd | network | power | people | software | financing | rent | gpus."""
    quantity: float
    unit: str
    price: Quantity
    """Of one unit, with source, date and interval."""
    capex_usd: float
    """Paid once."""
    capex_usd_per_month: float
    """The same over the amortisation."""
    opex_usd_per_month: float
    low_usd_per_month: float
    high_usd_per_month: float
    note: str = ""


class OptionBill(msgspec.Struct, kw_only=True):
    """What one option adds to the fleet, in USD a month."""

    option: str
    title: str
    items: list[BillItem]
    total: Quantity
    """USD a month."""
    capex: Quantity
    """USD, paid once."""
    idle_dram_at_cost: Quantity | None = None
    """USD a month of the idle DRAM it uses, if that had to be bought; not in `total`. Null: it uses
    none."""
    energy: Quantity
    """kWh a month at the meter, cooling included."""
    emissions: Quantity
    """kgCO2e a month."""
    gaps: list[str] = []
    """What could not be priced, and why."""


class TokenPrice(msgspec.Struct, kw_only=True):
    """What a million prompt tokens cost with one option; prefill and the option alone."""

    option: str
    title: str
    uncached: Quantity
    """USD for a million tokens that are computed."""
    cached: Quantity
    """USD for a million tokens that are served from a cache: the option over its hits."""
    mean: Quantity
    """USD for a million prompt tokens as they come."""


class ApiPrice(msgspec.Struct, kw_only=True):
    """List price of a provider of an API, for comparison."""

    title: str
    uncached_usd_per_million: float
    cached_usd_per_million: float
    source: str
    as_of: str


class PoolOverRival(msgspec.Struct, kw_only=True):
    """The best pool over the best option without one."""

    option: str
    title: str
    rival: str
    rival_title: str
    saving: Quantity
    """USD a month of instances given back, by the contract."""
    extra_cost: Quantity
    """USD a month that the pool costs beyond what the rival does."""
    payback: Quantity
    """Months until savings have paid what is bought; null: never, or not known."""
    npv: Quantity
    """USD over the amortisation."""
    gpu_usd_per_hour: Quantity
    """At which savings meet the extra cost; null: no price does."""
    dram_usd_per_gb: Quantity
    """The same; null: no price does."""


class Economics(msgspec.Struct, kw_only=True):
    """Money: all modelled, at the prices of the assumptions."""

    contract: str
    """owned | reserved | elastic."""
    is_contract_confirmed: bool
    contract_note: str
    """What an instance that is given back is worth by it, in one sentence."""
    paid_until: str | None = None
    """Reserved GPUs: last day; nothing is saved before. `never` where no last day is stated."""
    instance: Quantity
    """USD a month of one instance that is given back for all hours."""
    hours_share: Quantity | None = None
    """Part of those hours that one instance less really gives back, by the load over the day; null:
    not paid by the hour, or no whole day in the log."""
    bills: list[OptionBill]
    case: PoolOverRival | None = None
    """Null without a pool that is weighed, or where the log does not stand for a month."""
    tokens: list[TokenPrice] = []
    api_prices: list[ApiPrice] = []
