"""Constants of the cost model fitted to what a system measured of itself. Arrays in, no files."""

from kvtrace.cost.calibration.fit import Fitted
from kvtrace.cost.calibration.held_out import ErrorOfMetric, Residual
from kvtrace.cost.calibration.moves import OBSERVED_PATHS, calibrate_moves
from kvtrace.cost.calibration.observations import MoveTimes, RequestTimes
from kvtrace.cost.calibration.outcome import Calibration
from kvtrace.cost.calibration.parameters import NAMES, Parameter
from kvtrace.cost.calibration.profile import identified, profile_text
from kvtrace.cost.calibration.replayed import calibrate_replayed
from kvtrace.cost.calibration.requests import calibrate_requests

__all__ = [
    "NAMES",
    "OBSERVED_PATHS",
    "Calibration",
    "ErrorOfMetric",
    "Fitted",
    "MoveTimes",
    "Parameter",
    "RequestTimes",
    "Residual",
    "calibrate_moves",
    "calibrate_replayed",
    "calibrate_requests",
    "identified",
    "profile_text",
]
