"""Charts that compare algorithms, or topologies: bars of time where there is one size, else lines of time against size.

A picture of the messages of a schedule, round by round.
"""

from collections import defaultdict
from collections.abc import Container, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from emu.collective.algorithm import ALGORITHMS
from emu.collective.proof import ScheduleFault
from emu.collective.schedule import Schedule
from emu.registry import own_things
from emu.study.measure.bench import BenchRow
from emu.units import format_bandwidth, format_size
from launch.show.canvas import INK, add_legend, hue, new_page
from launch.show.chart.time_chart import PALE, Line, bars, lines
from launch.show.text.collective_table import MOST_RANKS, labels_of, messages_of, shown_algorithm
from launch.show.text.table import span_text

_COPY, _ADD = "#0072b2", "#d95f02"
_KINDS = ((True, _ADD, "added"), (False, _COPY, "copied"))
_WRONG: dict[str, Any] = {"markeredgecolor": "#c1121f", "markeredgewidth": 2.2}
_NEAR = 0.15  # share of the distance of two ranks by which an arrow takes its label away from its sender
_MOST_ROUNDS = 48  # beyond these, names of rounds overlap


def round_figure(schedule: Schedule, title: str, fault: ScheduleFault | None = None) -> Figure:
    """Return a picture of a schedule.

    Up to 16 participants and 48 rounds are drawn as arrows between rounds, more as a heat map of slots sent by each pair of
    ranks.

    Args:
        schedule: A schedule with all rows in memory.
        title: The text above the picture.
        fault: What is wrong: its round alone is drawn, with a ring at the rank; None: all rounds are drawn.
    """
    rounds = {number: rows for number, rows in enumerate(schedule.rounds()) if fault is None or number == fault.round}
    arrows = schedule.n_participants <= MOST_RANKS and len(rounds) <= _MOST_ROUNDS
    if arrows:
        figure, axes = new_page(min(28, max(6.5, 1.6 + 1.3 * len(rounds))), 1.8 + 0.42 * schedule.n_participants, title)
        _draw_arrows(figure, axes, schedule, rounds, fault)
    else:
        figure, axes = new_page(8, 7, title if fault is None else f"{title}\nround {fault.round} alone")
        _draw_pairs(figure, axes, schedule, list(rounds.values()))
    return figure


def _draw_arrows(
    figure: Figure, axes: Axes, schedule: Schedule, rounds: dict[int, slice], fault: ScheduleFault | None = None
) -> None:
    """Draw a column of participants before and after each round, with an arrow for each message."""
    people = np.arange(schedule.n_participants)
    named = [_draw_round(axes, schedule, place, rows, fault) for place, rows in enumerate(rounds.values())]
    edges = np.arange(len(rounds) + 1)
    for edge in edges:
        axes.plot(np.full(len(people), edge), people, "o", color=INK, markersize=4)
    names = [f"rank {p}" if p < schedule.n_ranks else "helper" for p in people.tolist()]
    axes.set_yticks(people, names, fontsize=8)
    axes.set_xticks(edges[:-1] + 0.5, [f"round {t}" for t in rounds], fontsize=8)
    axes.set_ylim(schedule.n_participants - 0.4, -0.6)
    axes.set_xlim(-0.15, len(rounds) + 0.15)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if not all(named):
        axes.set_xlabel("where a rank sends several messages in a round, their slots are left out", fontsize=7)
    kinds = {bool(adds) for rows in rounds.values() for adds in schedule.reduce[rows]}
    keys = [Line2D([], [], color=colour, label=what) for adds, colour, what in _KINDS if adds in kinds]
    if fault is not None:
        axes.plot(1, fault.rank, "o", markersize=11, markerfacecolor="none", **_WRONG)
        keys.append(
            Line2D([], [], marker="o", linestyle="", markerfacecolor="none", label=f"wrong: slot {fault.slot}", **_WRONG)
        )
    add_legend(figure, axes, 3, keys)


def _draw_round(axes: Axes, schedule: Schedule, place: int, rows: slice, fault: ScheduleFault | None) -> bool:
    """Draw the messages of one round, and return whether their slots are named: each participant sends at most one message."""
    groups = list(messages_of(schedule, rows))
    named = len(groups) <= len({int(schedule.src[g[0]]) for g in groups})
    for group in groups:
        src, dst = int(schedule.src[group[0]]), int(schedule.dst[group[0]])
        wrong = fault is not None and dst == fault.rank and fault.slot in schedule.written_slot[group]
        colour, width = _ADD if schedule.reduce[group[0]] else _COPY, 2.4 if wrong else 0.9
        style = {"arrowstyle": "-|>", "color": colour, "linewidth": width, "shrinkA": 3, "shrinkB": 3, "alpha": 0.85}
        axes.annotate("", (place + 1, dst), (place, src), arrowprops=style)
        if named:  # a label has room near its sender, above its arrow, or below one that goes up steeply
            label = ",".join(map(str, schedule.slot[group].tolist())) if len(group) <= 4 else f"{len(group)} slots"
            along = 0.06 * (dst - src)
            at = (place + 0.06, src + (0.25 if along < -_NEAR else min(along, _NEAR) - 0.1))
            axes.text(*at, label, fontsize=7, color=colour)
    return named


def _draw_pairs(figure: Figure, axes: Axes, schedule: Schedule, rounds: list[slice]) -> None:
    """Draw a heat map with a cell for each sender and receiver, coloured by the number of slots sent."""
    people = schedule.n_participants
    pairs = (schedule.src[rows].astype(np.int64) * people + schedule.dst[rows] for rows in rounds)
    pair = np.concatenate([np.empty(0, np.int64), *pairs])
    sent = np.bincount(pair, minlength=people**2).reshape(people, people)
    image = axes.imshow(np.where(sent > 0, sent, np.nan), cmap="viridis", vmin=0, interpolation="nearest")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("receiver")
    axes.set_ylabel("sender")
    figure.colorbar(image, ax=axes, label="slots sent", ticks=MaxNLocator(integer=True, min_n_ticks=1))


_BEST = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito's, safe for colour-blind readers
_MOST_LETTERS = 44  # most letters of the names of algorithms that share a line
_MARKS = "osD^vP*Xhd<>8p"


def algorithm_figure(rows: Sequence[BenchRow]) -> Figure:
    """Return a chart of how long each algorithm takes for one operation on one topology."""
    sizes, own = sorted({row.size_bytes for row in rows}), _own(rows)
    title = f"{rows[0].operation} among {rows[0].ranks} ranks of {rows[0].topology}"
    if len(sizes) == 1:
        notes = ["" if row.of_bound is None else f"of_bound {row.of_bound:.3f}" for row in rows]
        marked = "\nin orange: your own" if own else ""
        drawn = [(row.built, row.time_s, note) for row, note in zip(rows, notes, strict=True)]
        return bars(drawn, f"{title}, {format_size(sizes[0])}{marked}", own)
    more = f"; {', '.join(sorted(own))}: your own" if own else ""
    return lines(_lines(rows, own), f"{title}\nin colour: algorithms that are the fastest at some size{more}")


def _own(rows: Sequence[BenchRow]) -> set[str]:
    """Return the names of the rows whose algorithm the user has defined."""
    own = (thing for kind, _, thing in own_things() if kind == ALGORITHMS.kind)
    filed = {each.key for each in own if each.build.__module__.partition(".")[0] != ALGORITHMS.package}
    return {row.built for row in rows if f"{row.operation}/{row.algorithm.partition('@')[0]}" in filed}


def _lines(rows: Sequence[BenchRow], own: Container[str] = ()) -> list[Line]:
    """Return the lines of the chart, one for all algorithms with equal times.

    A line is pale if others are faster at every size, and it is none of the user's own.

    Args:
        rows: The rows.
        own: The names of the user's own algorithms.
    """
    times: dict[str, dict[int, float]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: row.size_bytes):
        times[row.built][row.size_bytes] = row.time_s
    alike: dict[tuple[tuple[int, float], ...], list[str]] = defaultdict(list)
    for name, of in sorted(times.items()):
        alike[tuple(of.items())].append(name)
    least = {size: min(of[size] for of in times.values() if size in of) for size in {row.size_bytes for row in rows}}
    firsts = [points for points in alike if any(least[size] == time_s for size, time_s in points)]
    best = [points for points, names in alike.items() if points in firsts or any(name in own for name in names)]
    colour = {points: _BEST[i % len(_BEST)] for i, points in enumerate(best)}
    drawn = []
    for points, names in alike.items():
        sizes, times_s = zip(*points, strict=True)
        drawn.append(Line(_short_names(names), sizes, times_s, colour.get(points, PALE)))
    return drawn


def _short_names(names: Sequence[str]) -> str:
    """Return the first names and the number of further ones, such as `direct, hyperx-direct and 3 more`."""
    shown = 1
    while shown < len(names) and len(", ".join(names[: shown + 1])) <= _MOST_LETTERS:
        shown += 1
    more = f" and {len(names) - shown} more" if shown < len(names) else ""
    return ", ".join(names[:shown]) + more


def topology_figure(rows: Sequence[BenchRow], words: Sequence[str]) -> Figure:
    """Return a chart of how long one operation takes on each topology, and by which algorithm.

    Times of several sizes are lines, with a colour for each topology, or for each algorithm that was asked for, and a mark for
    each algorithm that served it.

    Args:
        rows: The rows.
        words: The algorithm of each row as it was asked for.
    """
    ranks, on, labels = sorted({row.ranks for row in rows}), {row.topology for row in rows}, labels_of(rows, words)
    where = f" of {rows[0].topology}" if len(on) == 1 < len(set(words)) else ""
    title = f"{rows[0].operation} among {span_text(map(str, ranks))} ranks{where}"
    if len({row.size_bytes for row in rows}) == 1:
        drawn_bars = [
            (name, row.time_s, f"{f'{shown_algorithm(row)} · ' * (row.built != name)}{format_bandwidth(row.injection_Bps)}")
            for name, row in zip(labels, rows, strict=True)
        ]
        return bars(drawn_bars, f"{title}, {format_size(rows[0].size_bytes)}; right: algorithm, bandwidth out of an NPU")
    mark = {name: _MARKS[i % len(_MARKS)] for i, name in enumerate(dict.fromkeys(row.built for row in rows))}
    drawn = []
    for number, name in enumerate(dict.fromkeys(labels)):
        named = (row for label, row in zip(labels, rows, strict=True) if label == name)
        of = sorted(named, key=lambda row: row.size_bytes)
        colour = hue(number)
        points = tuple(row.size_bytes for row in of), tuple(row.time_s for row in of)
        drawn.append(Line(name, *points, colour, tuple(mark[row.built] for row in of)))
    return lines(drawn, title, marks=mark)
