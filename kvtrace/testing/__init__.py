"""Checks that a format keeps the laws of formats, for packages that bring one.

`check_format(FORMAT, [sample, …])` raises `NonconformityError` with the law that is broken; a test
function a law is `@pytest.mark.parametrize("law", LAWS, ids=str)` and `law.check(FORMAT, samples)`.
Samples are bytes or paths. docs/extending-formats.md has an example.
"""

from kvtrace.testing.laws import LAWS, Law, NonconformityError, check_format
from kvtrace.testing.reading import Reading, Sample, read_sample

__all__ = [
    "LAWS",
    "Law",
    "NonconformityError",
    "Reading",
    "Sample",
    "check_format",
    "read_sample",
]
