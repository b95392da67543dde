"""The share of the time that is useful work where a job saves checkpoints and restarts after a fault.

Symbols: delta the time of a checkpoint, R the time of a restart, M the mean time between faults of the job.
"""

from dataclasses import dataclass
from math import exp, expm1, sqrt

from emu.errors import must_be


@dataclass(frozen=True, slots=True)
class Restarts:
    """The interval at which a job saves, and the share of the time that faults and saving cost."""

    interval_s: float  # of work from one checkpoint to the next
    lost: float  # share of the time that is no work that lasts


def optimal_restarts(checkpoint_s: float, restart_s: float, mtbf_s: float) -> Restarts:
    """Return the interval that loses least time, and the share of the time that it loses.

    Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006): equation 37 for the
    interval, whose first term is Young's (CACM 17, 1974); equation 20 for the time that exponential faults make of it.

    Args:
        checkpoint_s: The time of a checkpoint, delta.
        restart_s: The time of a restart, R.
        mtbf_s: The mean time between faults of the whole job, M.

    Raises:
        InputError: The time of a checkpoint or between faults is not above 0, or the time of a restart is below 0.
    """
    for name, value, least in (("--checkpoint", checkpoint_s, "above 0"), ("--mtbf", mtbf_s, "above 0")):
        if value <= 0:
            raise must_be("faults", name, f"a time {least}", f"{value:g} s")
    if restart_s < 0:
        raise must_be("faults", "--restart", "a time of 0 or more", f"{restart_s:g} s")
    interval = _interval(checkpoint_s, mtbf_s)
    whole = mtbf_s * exp(min(restart_s / mtbf_s, 700.0)) * expm1(min((interval + checkpoint_s) / mtbf_s, 700.0))
    return Restarts(interval, 1 - interval / whole)


def _interval(delta: float, mtbf: float) -> float:
    """Return Daly's optimal interval of checkpoints."""
    if delta >= 2 * mtbf:
        return mtbf
    x = sqrt(delta / (2 * mtbf))
    return sqrt(2 * delta * mtbf) * (1 + x / 3 + x * x / 9) - delta
