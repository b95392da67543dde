"""Collectives in tables: the rows of a bench in the terms of nccl-tests, algorithms compared by size, and proofs.

A bench tells how near a time is to its bound; a schedule is shown by its messages, round by round.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf

import numpy as np

from emu.bound.limit import CROSSED, CUT, LATENCY, MESSAGES, PATHS, TRIED
from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule
from emu.collective.shape import PartialGrid, Shape, show_shape
from emu.study.measure.bench import BenchRow, UntimedRow, algorithm_names, best_rows
from emu.study.measure.request import PlacedBench
from emu.study.prove.verify import VerificationRow
from emu.units import format_size, format_time
from launch.shell import setting_text
from launch.show.text.packet_lines import beside_fluid, check_lines, waits_of_packets
from launch.show.text.table import Column, column_table, merged_assumption_lines, spread_lines, table

BOUND_MEANINGS = {
    CUT: "the bytes that a set of nodes must send to the other nodes, over the links out of the set; the slowest of all sets",
    TRIED: "the bytes that some ranks must send to the others; the slowest of single ranks, groups and halves is taken",
    MESSAGES: "where only ranks add, n ranks, or groups of ranks, need at least 2(n - 1) messages to add up and spread a byte",
    CROSSED: "the bytes of all pairs, times the fewest links between each pair, shared by all links or by all links of a tier",
    PATHS: "the bytes of all pairs, spread over all links along the best paths",
    LATENCY: "the latency of the quickest path between the two ranks that are farthest apart",
}
_OF_BOUND = (
    "of_bound: the bound divided by the time. No schedule beats the bound; 1 means that nothing is left to gain. "
    "Kinds of bounds:"
)


def of_bound(row: BenchRow) -> str:
    """Return the lower bound as a share of the time, as text."""
    return "-" if row.of_bound is None else f"{row.of_bound:.3f}"


BOUND_COLUMNS: tuple[Column[BenchRow], ...] = (Column("of_bound", of_bound), Column("bound", lambda row: row.bound or "-"))


def bounds_text(rows: Sequence[BenchRow]) -> str:
    """Return a note on the meaning of `of_bound` for these rows: the kinds of bounds, and those not computed.

    An all_reduce also gets the times of the best algorithms that are known, which are no bounds.
    """
    kinds = sorted({row.bound for row in rows if row.bound})
    told = [_OF_BOUND] if kinds else []
    told += [f"  {kind}: {BOUND_MEANINGS[kind]}" for kind in kinds]
    left_out = list(dict.fromkeys(each for row in rows for each in row.bounds_left_out))
    if left_out:
        told.append(f"  not computed, because they take long (add {setting_text('bounds', 'all')}): {', '.join(left_out)}")
    largest = {row.topology: row for row in sorted(rows, key=lambda row: row.size_bytes)}
    return "\n".join([*told, *filter(None, map(_orientation_text, largest.values()))])


def _orientation_text(row: BenchRow) -> str:
    """Return a note with the times of the best known algorithms for an all_reduce; "" if none is known."""
    times = {"the best reduce_scatter and then the best all_gather": row.in_a_row_s, "the best trees": row.trees_s}
    known = [f"{name} would take {format_time(time_s)}" for name, time_s in times.items() if time_s is not None]
    size = format_size(row.size_bytes)
    return f"without latency, {', '.join(known)} ({size} on {row.topology}); this is no bound" if known else ""


def compare_lines(asked: PlacedBench, rows: Sequence[BenchRow | UntimedRow]) -> Iterator[str]:
    """Yield a line for each algorithm with time and of_bound of each size, then the fastest of each size and the assumptions.

    The fastest at the largest size comes first; algorithms that were not timed there come last.

    Args:
        asked: The comparison that was asked for.
        rows: The rows of each algorithm, size after size.
    """
    op, sizes, width = asked.operation, asked.request.sizes, max(map(len, algorithm_names(asked)))
    yield f"{op.name} among {op.n_ranks} ranks of {asked.site.topology.name}: virtual time and of_bound"
    yield ""
    yield _line("algorithm", [(format_size(size), "") for size in sizes], width)
    yield _line("", [("time", "of_bound")] * len(sizes), width)
    lines = [(built, list(of)) for built, of in groupby(rows, key=lambda row: row.built)]
    at_most = {row.built: row.time_s for row in rows if isinstance(row, BenchRow) and row.size_bytes == sizes[-1]}
    for built, line in sorted(lines, key=lambda each: at_most.get(each[0], inf)):
        yield _line(built, map(_cell, line), width)
    yield from _tail(rows)


def _line(name: str, cells: Iterable[tuple[str, str]], width: int) -> str:
    """Return a line of the table that compares algorithms: a name, then two texts for each size.

    Args:
        name: The algorithm, or the title of the first column.
        cells: For each size its time and its of_bound; in the lines of titles the size and "", and what they are.
        width: The width of the first column in characters.
    """
    return "  ".join([name.ljust(width), *(f"{time:>12} {of:<8}" for time, of in cells)]).rstrip()


def _cell(row: BenchRow | UntimedRow) -> tuple[str, str]:
    """Return the time and of_bound of a row; a row that was not timed has a least time."""
    if isinstance(row, UntimedRow) and row.why_not:
        return "stopped", "-"
    if isinstance(row, UntimedRow):
        assert row.at_least_s is not None, "its bound is why it was not timed"
        return f">= {format_time(row.at_least_s)}", "-"
    return format_time(row.time_s), of_bound(row)


def _tail(rows: Sequence[BenchRow | UntimedRow]) -> Iterator[str]:
    """Yield the lines of notes below the table."""
    timed, best = [row for row in rows if isinstance(row, BenchRow)], best_rows(rows)
    untimed = [row for row in rows if isinstance(row, UntimedRow)]
    if not all(row.why_not for row in untimed):
        yield "(>=: not timed, as that takes long; by this bound another is faster)"
    yield from (f"stopped: {row.built} of {format_size(row.size_bytes)}: {row.why_not}" for row in untimed if row.why_not)
    yield ""
    yield f"fastest: {'; '.join(f'{format_size(size)}: {best[size].built}' for size in sorted(best)) or 'none could be timed'}"
    yield from (line for size in sorted(best) for line in _check_of(best[size]))
    yield from ("", *filter(None, [bounds_text(timed)]), "")
    yield from merged_assumption_lines([(row.built, row.assumptions) for row in timed])


def shown_algorithm(row: BenchRow) -> str:
    """Return the algorithm of a row with its grid; a star says that others were not tried when it was chosen."""
    return row.built + "*" * bool(row.passed_over)


_INJECTION: Column[BenchRow] = Column("injection", lambda row: f"{row.injection_Bps / 1e9:.0f}", "(GB/s)")
_COLUMNS: tuple[Column[BenchRow], ...] = (
    Column("topology", lambda row: row.topology),
    Column("operation", lambda row: row.operation),
    Column("algorithm", shown_algorithm),
    Column("ranks", lambda row: str(row.ranks)),
    Column("size", lambda row: format_size(row.size_bytes)),
    Column("type", lambda row: row.dtype),
    Column("time", lambda row: format_time(row.time_s)),
    Column("algbw", lambda row: f"{row.algbw_Bps / 1e9:.3f}", "(GB/s)"),
    Column("busbw", lambda row: f"{row.busbw_Bps / 1e9:.3f}", "(GB/s)"),
    *BOUND_COLUMNS,
    Column("wrong", lambda row: "-" if row.wrong is None else str(row.wrong)),
)


def labels_of(rows: Sequence[BenchRow], words: Sequence[str]) -> list[str]:
    """Return the name of each row among the others: its topology, or its algorithm, or both where there are several of both.

    Args:
        rows: The rows.
        words: The algorithm of each row as it was asked for.
    """
    if len(set(words)) == 1:
        return [row.topology for row in rows]
    if len({row.topology for row in rows}) == 1:
        return [*words]
    return [f"{word} on {row.topology}" for word, row in zip(words, rows, strict=True)]


def _columns(rows: Sequence[BenchRow]) -> Sequence[Column[BenchRow]]:
    """Return the columns of the table of a bench; rows of several topologies also have the rate out of an NPU."""
    several = len({row.topology for row in rows}) > 1
    after = [column.head for column in _COLUMNS].index("busbw") + 1
    return (*_COLUMNS[:after], _INJECTION, *_COLUMNS[after:]) if several else _COLUMNS


def bench_report(rows: Sequence[BenchRow], words: Sequence[str]) -> str:
    """Return the report of all rows as text.

    Args:
        rows: The rows.
        words: The algorithm of each row as it was asked for.
    """
    moved = "no data was moved" if rows[0].wrong is None else "every element of every rank was checked"
    overhead = format_time(rows[0].send_overhead_s)
    engines = ", ".join(sorted({row.engine for row in rows}))
    named = ((f"{row.operation} {row.built} of {format_size(row.size_bytes)} on {row.topology}", row.spread) for row in rows)
    varying = [line for name, spread in named for line in spread_lines(name, spread)]
    lines = [
        column_table(_columns(rows), rows),
        "",
        f"virtual time (engine: {engines}); {moved}; send overhead {overhead}",
        *_by_library(rows),
        *_passed_over(rows),
        *varying,
        *_packet_lines(rows),
        bounds_text(rows),
        "",
        *_assumed(rows, words),
    ]
    return "\n".join(lines)


def _assumed(rows: Sequence[BenchRow], words: Sequence[str]) -> list[str]:
    """Return the assumptions of the rows, each once; those that not all algorithms on a topology have are told by algorithm."""
    told = [(row.topology, row.assumptions) for row in rows]
    if len(set(words)) == 1:
        return merged_assumption_lines(told)
    of = {name: [sentences for each, sentences in told if each == name] for name, _ in told}
    common = {name: [s for s in every[0] if all(s in each for each in every)] for name, every in of.items()}
    own: dict[str, list[str]] = {}
    for label, (name, sentences) in zip(labels_of(rows, words), told, strict=True):
        for sentence in sentences:
            if sentence not in common[name] and label not in own.setdefault(sentence, []):
                own[sentence].append(label)
    return [*merged_assumption_lines([*common.items()]), *(f"- {', '.join(labels)}: {s}" for s, labels in own.items())]


def _packet_lines(rows: Sequence[BenchRow]) -> Iterator[str]:
    """Yield the lines of each row that was timed by packets: beside the fluid time, and where packets waited."""
    for row in rows:
        if row.packets is not None:
            what = f"{row.topology}, {row.built} of {format_size(row.size_bytes)}"
            yield f"packets on {what} by {row.packets.network}: {beside_fluid(row.time_s, row.packets)}"
            yield from (f"  {said}" for said in waits_of_packets(row.packets))
        yield from _check_of(row)


def _check_of(row: BenchRow) -> Iterator[str]:
    """Yield the lines of the check of a row by packets; none where it was not asked for."""
    if row.fabric_check is not None:
        first, *more = check_lines(row.fabric_check)
        yield f"fabric check on {row.topology}, {row.built} of {format_size(row.size_bytes)}, by {first}"
        yield from (f"  {said}" for said in more)


def _by_library(rows: Sequence[BenchRow]) -> list[str]:
    """Return a line for each choice of a library, with the sizes that it holds for."""
    said = [(row.topology, row.chosen, row.size_bytes) for row in rows if row.chosen]
    alike = [(key, [size for *_, size in of]) for key, of in groupby(said, key=lambda each: each[:2])]
    ranges = [" to ".join(dict.fromkeys(map(format_size, (sizes[0], sizes[-1])))) for _, sizes in alike]
    return [f"chosen on {name}, {sizes}: {chosen}" for ((name, chosen), _), sizes in zip(alike, ranges, strict=True)]


def _passed_over(rows: Sequence[BenchRow]) -> list[str]:
    """Return a line for each topology with the algorithms that `auto` did not try; their rows have a star."""
    by_topology: dict[str, set[str]] = {}
    for row in rows:
        by_topology.setdefault(row.topology, set()).update(row.passed_over)
    why = "too many messages to be timed for a choice; name one with --algorithm to time it"
    return [f"* not tried on {name}: {', '.join(sorted(passed))}: {why}" for name, passed in by_topology.items() if passed]


def bench_text(row: BenchRow | UntimedRow) -> str:
    """Return a row of a bench as a short text: its algorithm, its size, its topology, and its time or `not timed`."""
    time = format_time(row.time_s) if isinstance(row, BenchRow) else "not timed"
    return f"{row.built}, {format_size(row.size_bytes)} on {row.topology}: {time}"


MOST_RANKS = 16  # ranks whose messages a person can read


def round_lines(schedule: Schedule) -> Iterator[str]:
    """Yield a line for each round, such as `round 0: 0>1 +3  1>0 +2`.

    Each message is `src>dst` with its slots. `+` marks slots that are added, `/1` is a channel other than 0.
    """
    for number, rows in enumerate(schedule.rounds()):
        messages = (_message(schedule, group) for group in messages_of(schedule, rows))
        yield f"round {number}: {'  '.join(messages)}"


def fault_line(schedule: Schedule, fault: ScheduleFault) -> str:
    """Return the messages of the round with a fault: all if at most 16, else those with the faulty slot."""
    groups = list(messages_of(schedule, schedule.rounds()[fault.round]))
    if len(groups) <= MOST_RANKS:
        return f"round {fault.round}: {'  '.join(_message(schedule, group) for group in groups)}"
    carry = [g[(schedule.slot[g] == fault.slot) | (schedule.written_slot[g] == fault.slot)] for g in groups]
    shown = [group for group in carry if len(group)]
    more = f"  and {len(shown) - MOST_RANKS} more" if len(shown) > MOST_RANKS else ""
    messages = "  ".join(_message(schedule, group) for group in shown[:MOST_RANKS])
    return f"round {fault.round}, of its {len(groups)} messages those with slot {fault.slot}: {messages}{more}"


def messages_of(schedule: Schedule, rows: slice) -> Iterator[np.ndarray]:
    """Yield the rows of each message among these rows of a schedule."""
    key = np.stack((schedule.src[rows], schedule.dst[rows], schedule.channel[rows])).astype(np.int64)
    ends = np.flatnonzero(np.diff(key, append=key[:, -1:] - 1).any(axis=0)) + 1
    yield from np.split(np.arange(rows.start, rows.stop), ends[:-1])


def _message(schedule: Schedule, group: np.ndarray) -> str:
    """Return a message as text."""
    first = group[0]
    lane = f"/{schedule.channel[first]}" if schedule.channel[first] else ""
    slots = ",".join(f"{'+' * bool(schedule.reduce[row])}{schedule.slot[row]}" for row in group)
    return f"{schedule.src[first]}>{schedule.dst[first]}{lane} {slots}"


_HEADS = ("operation", "algorithm", "ranks", "shapes", "roots", "proved", "claimed time", "wall (s)")


def proof_lines(rows: Iterable[VerificationRow]) -> Iterator[str]:
    """Yield the table, and a line for each shape that was not run."""
    rows = list(rows)
    groups = groupby(rows, key=lambda row: (row.operation, row.algorithm))
    yield table(_HEADS, [_cells(list(group)) for _, group in groups])
    missed = [row for row in rows if row.proved == "not run"]
    yield from (f"not run: {row.operation} {row.algorithm} on {_shape(row)}: {row.proof}" for row in missed)


def _cells(found: Sequence[VerificationRow]) -> tuple[str, ...]:
    """Return the cells of one algorithm of an operation."""
    first, run = found[0], [row for row in found if row.proved != "not run"]
    bad, late = next((row for row in found if row.refused), None), next((row for row in found if row.failed), None)
    proved = _proof_cell(run) if bad is None else f"FAILS on {_shape(bad)}"
    claim = "" if bad else _claims(run) if late is None else f"DIFFERS on {_shape(late)}"
    roots = "first, middle, last" if any(len(row.roots) > 1 for row in found) else "0" if first.roots else "-"
    wall, ranks = f"{sum(row.wall_s for row in found):.2f}", number_ranges(row.ranks for row in found)
    return (first.operation, first.algorithm, ranks, str(len(found)), roots, proved, claim, wall)


def _proof_cell(run: Sequence[VerificationRow]) -> str:
    """Return the table cell that says on which shapes an algorithm was proved."""
    if not run:
        return "not run"
    moved, plain = (sum(test(row) for row in run) for test in (lambda r: r.proved != "exact", lambda r: not r.uniform))
    words = ["exact sums, integers", f"same bits on {len(run) - plain}" if plain else "same bits"]
    return ", ".join(words + [f"{moved} by translation"] * bool(moved))


def _claims(run: Sequence[VerificationRow]) -> str:
    """Return a note on how many times are equal to the claimed ones or below them."""
    words = (("equal", "equal"), ("bound", "below"), ("none", "none"), ("not timed", "not timed"))
    counts = [(word, sum(row.claim == claim for row in run)) for claim, word in words]
    there = [(word, count) for word, count in counts if count]
    return there[0][0] if len(there) == 1 else ", ".join(f"{word} on {count}" for word, count in there)


def _shape(row: VerificationRow) -> str:
    """Return the shape of a row in words."""
    shape: Shape = PartialGrid(row.shape, row.members) if row.members is not None else row.shape
    return f"{show_shape(shape)} rank{'s' * (show_shape(shape) != '1')}"


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers as ranges, such as `1..17, 31, 32, 64`."""
    found = np.unique(np.fromiter(numbers, np.int64))
    runs = (run.tolist() for run in np.split(found, np.flatnonzero(np.diff(found) != 1) + 1))
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
