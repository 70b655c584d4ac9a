"""Units of points."""

from __future__ import annotations

import pytest

from kvtrace.cost.validation.quantities import unit_of, written_in
from kvtrace.cost.validation.routes import CannotPredictError


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("tok/s/GPU", ("tokens_per_s", 1.0)),
        ("ktok/s", ("tokens_per_s", 1e3)),
        ("tokens/s/user", ("tokens_per_s", 1.0)),
        ("GB/s/node", ("bytes_per_s", 1e9)),
        ("GBps", ("bytes_per_s", 1e9)),
        ("Gbps", ("bytes_per_s", 1.25e8)),
        ("bytes", ("bytes", 1.0)),
        ("MiB/block", ("bytes", 1048576.0)),
        ("KiB/token", ("bytes", 1024.0)),
        ("ms/GB", ("s_per_byte", 1e-12)),
        ("percent", ("ratio", 0.01)),
        ("sec", ("seconds", 1.0)),
    ],
)
def test_units(unit: str, expected: tuple[str, float]) -> None:
    dimension, size = unit_of(unit)
    assert dimension == expected[0]
    assert size == pytest.approx(expected[1])


@pytest.mark.parametrize("unit", ["furlong", "/GPU", "GPU", "GB/fortnight", "400G"])
def test_an_unknown_unit_is_a_reason(unit: str) -> None:
    with pytest.raises(CannotPredictError, match="is not known"):
        unit_of(unit)


def test_a_value_is_written_in_its_own_dimension_only() -> None:
    assert written_in("ms", "seconds", 0.25) == pytest.approx(250)
    with pytest.raises(CannotPredictError, match="does not measure seconds"):
        written_in("GB", "seconds", 0.25)
