"""The reason why a plan is slower than another: the part of its step in which it loses most time."""

from collections.abc import Mapping

from emu.study.planning.search.row import PlanRow
from emu.units import format_time

_AXES = {"tp": "tensor", "cp": "context", "ep": "expert", "etp": "expert tensor", "dp": "data", "pp": "pipeline"}


def parts_s(row: PlanRow) -> dict[str, float]:
    """Return the parts of a step in seconds; they add up to the step."""
    idle = {"bubble": row.bubble_s, "straggling": row.idle_s - row.bubble_s}
    return {"compute": row.compute_s, **row.exposed_comm_by_axis_s, **idle}


def reason_of(row: PlanRow, best: PlanRow) -> str:
    """Return in words why a plan is slower than the best plan: the part that differs most, or how much faster it is."""
    if row.step_time_s <= best.step_time_s:
        less_s = best.step_time_s - row.step_time_s
        return f"{format_time(less_s)} faster than the best that was found" if less_s else "takes as long"
    own, other = parts_s(row), parts_s(best)
    worst = max({**own, **other}, key=lambda part: own.get(part, 0.0) - other.get(part, 0.0))
    more = own.get(worst, 0.0) - other.get(worst, 0.0)
    gains = [format_time(row.step_time_s - best.step_time_s), "slower:"]
    return " ".join([*gains, _told(worst, format_time(more), row, best)])


def _told(part: str, more: str, row: PlanRow, best: PlanRow) -> str:
    """Return the sentence about one part of a step."""
    if part == "compute":
        return f"{more} more computation{_computes(row, best)}"
    if part == "bubble":
        return f"{more} more waiting for other stages (bubble)"
    if part == "straggling":
        return f"{more} more waiting for other ranks of the same stage (straggling)"
    kind = f"{_AXES[part]} parallel" if part in _AXES else part
    return f"{more} more exposed {kind} communication ({part})"


def _computes(row: PlanRow, best: PlanRow) -> str:
    """Return the cause of more computation, as far as the settings of both plans show it."""
    mine, other = (_settings(each) for each in (row, best))
    order = ("none", "selective", "ops", "full")
    if order.index(mine["recompute"]) > order.index(other["recompute"]):
        return f", of it what recompute={mine['recompute']} works out again"
    if (row.optimizer_s or 0.0) - (best.optimizer_s or 0.0) > 0.5 * (row.compute_s - best.compute_s):
        return ", most of it the optimizer's"
    if mine["stages"] != other["stages"]:
        return ", as its slowest stage has more of the model"
    return ", as its operators are smaller or more of them are whole on each rank"


def _settings(row: PlanRow) -> Mapping[str, str]:
    """Return the settings of a plan that change its computation."""
    words = dict(word.partition("=")[::2] for word in row.plan.split(","))
    return {"recompute": words.get("recompute", "none"), "stages": f"{words.get('pp', '1')}x{words.get('vp', '1')}"}
