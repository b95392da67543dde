"""The sentences that say on what the figures of jobs side by side rest."""

from collections.abc import Iterator

from emu.study.jobs.jobs_request import (
    CIRCLE,
    INTENSITY,
    LANES,
    LEAST_LOADED,
    PLANES,
    PRIORITY,
    SLICES,
    WEIGHTS,
    JobsSetting,
)
from emu.study.jobs.side_by_side import SideBySide
from emu.study.jobs.step_graphs.link_shares import level_ratio

_COMPOSED_ASSUMED = (
    "steps are composed: a request is one body; the step of a job is its estimate times how far its bodies are slowed down"
)
_MEETING = "requests that meet those of another job on a link are no bodies, but have every message"
_COARSE = (
    "requests that meet those of another job on a link are bodies, too, as they have too many messages: this may be wrong by a "
    "quarter and more. With every message a step would take a time in the range that is told: least as alone; most, where each "
    "request needs all links that it crosses all the time. The matrix has no such range"
)
_SHARES = {
    INTENSITY: "weights follow from computation for each second of the busiest link: 64 for the most intense job",
    SLICES: "a job has a slice of each link that it uses, by its weight, and no more, even if other jobs leave theirs idle",
    LANES: "each job has lanes of its own at each port, with queues, pauses and credits of their own; lanes take turns",
    PLANES: "a job sends over its own planes of the topology alone; its step alone is that on these planes",
}
_WEIGHED = "a message of weight w gets w shares of a full link, as weighted fair queues give them"
_LEAST = (
    "routes are chosen for one job after another, the most intense first: of the paths that other channels of a pair have, the "
    "one whose busiest link has least to carry (Crux, 4.1)"
)


def notes_of(beside: SideBySide, setting: JobsSetting) -> tuple[str, ...]:
    """Return a sentence for each thing on which the figures of a setting rest."""
    packets = beside.request.packets
    return (*beside.topology.assumptions, *_notes(beside, setting), *(packets.assumptions if packets is not None else ()))


def _notes(beside: SideBySide, setting: JobsSetting) -> Iterator[str]:
    """Yield the sentences on the jobs and on the setting."""
    yield "a step of a job begins when all its ranks have ended the step before; a job repeats its step"
    yield "algorithms are those that are chosen for each job as if no other ran"
    yield "a cell of the matrix is a run of two jobs alone: the job of the row beside that of the column"
    if beside.is_composed:
        yield from (_COMPOSED_ASSUMED, _COARSE if beside.is_coarse else _MEETING)
    if setting.share in _SHARES:
        yield _SHARES[setting.share]
    if setting.share == PRIORITY:
        yield _priority_note(beside)
    weighed = setting.share == WEIGHTS and any(placed.job.weight != 1 for placed in beside.placed)
    if setting.share == INTENSITY or weighed:
        yield _WEIGHED
    if setting.shift == CIRCLE:
        yield "jobs begin later by the turn of their steps on a common circle; nothing holds them there afterwards"
    if setting.routes == LEAST_LOADED:
        yield _LEAST


def _priority_note(beside: SideBySide) -> str:
    """Return the sentence on strict priorities."""
    if beside.request.packets is not None:
        return "jobs of one priority share lanes of their own at each port; packets of a higher one always go first"
    ratio = level_ratio(len({placed.job.priority for placed in beside.placed}))
    return (
        f"on a full link a message gets {ratio} times as much as one of the next lower priority, which comes near to a strict "
        "order; jobs of one priority share evenly"
    )
