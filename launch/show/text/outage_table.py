"""The report of `emu outage` as text: the throughput of each span of time, goodput, and what the rest went to."""

from emu.study.live.throughput import JobThroughput, ThroughputSpan
from emu.units import format_time
from launch.show.text.table import assumption_lines, table

_HEAD = ("from", "to", "the job", "throughput", "tokens/s", "what happened")
_UNITS = ("s", "s", "", "%", "", "")
# The fields of what is lost, in words; a smaller grid may have shorter ways, so that slower steps may lose less than nothing.
LOSSES = {
    "slower_s": "slower steps",
    "waiting_s": "waiting",
    "saving_s": "checkpoints",
    "down_s": "down",
    "starting_s": "starting again",
    "again_s": "work done again",
}


def outage_report(job: JobThroughput) -> str:
    """Return the throughput of a job on one topology as text."""
    count = len(job.faults)
    lost = [(told, getattr(job, name)) for name, told in LOSSES.items()]
    parts = ", ".join(f"{told} {100 * time_s / job.until_s:.3g} %" for told, time_s in lost if abs(time_s) > 0)
    lines = [
        f"{job.ranks} {job.device} on {job.topology}, {count} fault{'s' * (count != 1)}; without faults a step takes "
        f"{format_time(job.step_time_s)}, {job.tokens_per_s:.4g} tokens/s",
        "",
        table(_HEAD, [_row(span) for span in job.spans], units=_UNITS),
        "",
        f"goodput         {job.goodput:.4g} of {format_time(job.until_s)}" + (f"; lost: {parts}" if parts else ""),
        *([] if job.stopped is None else [f"stopped         {job.stopped}"]),
        "",
        *assumption_lines(job.assumptions),
    ]
    return "\n".join(lines)


def _row(span: ThroughputSpan) -> tuple[str, ...]:
    """Return the cells of a span."""
    share = f"{100 * span.share:.4g}"
    times = (f"{time_s:.6g}" for time_s in (span.begin_s, span.end_s))
    return (
        *times,
        span.state,
        share,
        f"{span.tokens_per_s:.4g}",
        "; ".join((*span.events, *([span.told] if span.told else []))),
    )
