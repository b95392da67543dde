"""The parts of a report that a profiled step has besides its replay: its measured times, its collectives and its kernels."""

from collections.abc import Sequence

from emu.study.training.step.step import Step
from emu.trace.formats.measured_parts import MeasuredParts
from emu.trace.report.collective_times import CallTimes, CollectiveTimes
from emu.trace.report.kernel_times import KernelTimes
from emu.units import format_size, format_time
from launch.show.blocks import Fact, KeyFigure
from launch.show.text.table import Column, column_table, figures

_LISTED = 12  # kinds of collectives, and of kernels, that are listed
_NAME = 48  # letters of the name of a kernel


def read_facts(step: Step) -> list[Fact]:
    """Return facts on what was read of a profile; empty for Emu's own traces."""
    return [Fact("" if i else "read", line) for i, line in enumerate(step.read or ())]


def measured_facts(step: Step) -> list[Fact]:
    """Return facts on the measured time and parts of a step; empty if it was not measured."""
    measured_s, parts, error = step.measured_step_s, step.measured_parts, step.replay_error
    if measured_s is None:
        return []
    told = f"{format_time(measured_s)}; the replay takes {_difference_text(step.step_time_s / measured_s - 1)}"
    if error is not None:
        here = error.topology == step.topology
        there = f" on {error.topology}, where the replay takes {_difference_text(error.share)}"
        told = f"{told}: its error on the fabric that it ran on" if here else f"{format_time(measured_s)}{there}"
    figure = KeyFigure("measured_step_s", "measured", format_time(measured_s), measured_s)
    facts = [Fact("measured", told, figure), *(_measured_parts(parts) if parts is not None else [])]
    if error is not None and error.topology != step.topology:
        facts.append(
            Fact(
                "against that",
                f"{_difference_text(step.step_time_s / error.step_time_s - 1)} than the replay on {error.topology}",
            )
        )
    return facts


def _measured_parts(parts: MeasuredParts) -> list[Fact]:
    """Return the parts of a measured step."""
    axes = ", ".join(f"{axis or 'other'} {format_time(s)}" for axis, s in parts.exposed_comm_by_axis_s.items() if s)
    by_axis = f" ({axes})" if axes else ""
    waiting = f"{format_time(parts.exposed_comm_s)}{by_axis}, with waiting for other ranks"
    return [
        Fact("  compute", f"{format_time(parts.compute_s)} as a mean over ranks, as the next two"),
        Fact("  exposed comm", waiting),
        Fact("  idle", format_time(parts.idle_s)),
    ]


def _difference_text(share: float) -> str:
    """Return a relative difference as text, such as `0.8% less`."""
    return f"{abs(share):.1%} {'more' if share > 0 else 'less'}"


def _starts_text(times: CallTimes) -> str:
    """Return how far the starts of a call differ and which rank is last, as text; "-" if unknown."""
    if times.apart_s is None:
        return "-"
    return format_time(times.apart_s) + (f" for rank {times.last_rank}" if times.last_rank is not None else "")


COLLECTIVES: Sequence[Column[CollectiveTimes]] = (
    Column("collective", lambda each: each.operation),
    Column("axis", lambda each: each.axis or "-"),
    figures("ranks", lambda each: each.ranks),
    figures("size", lambda each: each.size_bytes, format_size),
    figures("times", lambda each: each.times),
    figures("measured", lambda each: each.measured.time_s, format_time),
    figures("virtual", lambda each: each.virtual.time_s, format_time),
    figures("ratio", lambda each: each.ratio, "{:.2f}".format),
    Column("starts apart", lambda each: _starts_text(each.measured)),
    Column("virtual", lambda each: _starts_text(each.virtual)),
)


KERNELS: Sequence[Column[KernelTimes]] = (
    Column("kernel", lambda each: each.name[:_NAME]),
    Column("work", lambda each: each.work),
    Column("dtype", lambda each: each.dtype or "-"),
    figures("times", lambda each: each.times),
    figures("measured", lambda each: each.measured_s, format_time),
    figures("on the device", lambda each: each.device_s, lambda time_s: "-" if time_s is None else format_time(time_s)),
)


def _kernels(step: Step) -> list[str]:
    """Return a table of the kernels of a profile as timed on another device, longest first."""
    if not step.kernels:
        return []
    kept = sum(each.times for each in step.kernels if each.device_s is None)
    told = f"{kept:,} of {sum(each.times for each in step.kernels):,} kernels last as they were measured"
    more = f"; {len(step.kernels) - _LISTED} more kinds with --json" * (len(step.kernels) > _LISTED)
    return ["", column_table(KERNELS, step.kernels[:_LISTED]), f"{told}{more}", ""]


def _collectives(step: Step) -> list[str]:
    """Return a table of the collectives of a profile, longest first."""
    if not step.collectives:
        return []
    more = len(step.collectives) - _LISTED
    rest = [f"and {more} more kinds of collectives, which --json and --html have"] * (more > 0)
    return ["", column_table(COLLECTIVES, step.collectives[:_LISTED]), *rest, ""]


def profile_tables(step: Step) -> list[str]:
    """Return the tables of a profiled step: its collectives and its kernels."""
    return [*_collectives(step), *_kernels(step)]
