"""A recorded step on more ranks: its trace with a larger data-parallel size, and adapted notes on work and times."""

from dataclasses import replace

from emu.study.training.step.rate import with_more_work
from emu.trace.formats.reading import reading_entry, reading_of
from emu.trace.growth import grown
from emu.trace.trace import Trace

_ABOUT_RANKS = ("plan", "reading")  # entries of meta that tell of the ranks that were recorded


def grown_job(trace: Trace, ranks: int) -> Trace:
    """Return the trace of the same job on more ranks, each with the same batch as before.

    Measured times of whole steps are left out, because nobody measured this job; those of computations stay.

    Args:
        trace: The trace.
        ranks: The number of ranks, a multiple of those of the trace.

    Raises:
        InputError: as `grown`.
    """
    found = grown(trace, ranks)
    if found is trace:
        return trace
    reading = reading_of(trace)
    kept = tuple(entry for entry in found.meta if entry[0] not in _ABOUT_RANKS)
    if reading is not None:
        kept = (*kept, reading_entry(replace(reading, step_times_s=(), parts=(), collective_s=0.0)))
    return with_more_work(replace(found, meta=kept), ranks // trace.n_ranks)
