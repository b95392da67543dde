"""What is left of the time where a job saves checkpoints and begins again after a fault.

Symbols: delta what a checkpoint takes, R what a restart takes, M the mean time between faults of the job.
"""

from dataclasses import dataclass
from math import exp, expm1, sqrt

from emu.errors import must_be


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a job saves, and what faults and saving cost it."""

    interval_s: float  # of work from one checkpoint to the next
    lost: float  # share of the time that is no work that lasts


def optimal(checkpoint_s: float, restart_s: float, mtbf_s: float) -> Restarts:
    """The interval that loses least.

    Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006): equation 37 for the
    interval, whose first term is Young's (CACM 17, 1974); equation 20 for the time that exponential faults make of it.

    Args:
        checkpoint_s: delta.
        restart_s: R.
        mtbf_s: M, of the whole job.

    Raises:
        InputError: a checkpoint or a mean time of 0 or less, or a restart of less than 0.
    """
    for name, value, least in (("checkpoint", checkpoint_s, "above 0"), ("mtbf", mtbf_s, "above 0")):
        if value <= 0:
            raise must_be("faults", name, f"a time {least}", f"{value:g} s")
    if restart_s < 0:
        raise must_be("faults", "restart", "a time of 0 or more", f"{restart_s:g} s")
    interval = _interval(checkpoint_s, mtbf_s)
    whole = mtbf_s * exp(min(restart_s / mtbf_s, 700.0)) * expm1(min((interval + checkpoint_s) / mtbf_s, 700.0))
    return Restarts(interval, 1 - interval / whole)


def _interval(delta: float, mtbf: float) -> float:
    if delta >= 2 * mtbf:
        return mtbf
    x = sqrt(delta / (2 * mtbf))
    return sqrt(2 * delta * mtbf) * (1 + x / 3 + x * x / 9) - delta
