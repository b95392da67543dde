"""The algorithms of a trace: those that served it when it ran, those on another fabric, and a choice for a whole step."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import I64, digest
from emu.collective.choice import AlgorithmOnDims, Choice, Request, operation_of
from emu.collective.chooser_names import OWN_CHOOSERS, SYNTHESIZED
from emu.study.choice.chooser import choice_on
from emu.study.training.axis_algorithms import axes_named, check_axes, operations_by_axis
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.matching.matcher import collective_requests
from emu.trace.replay.replay_graph import Service
from emu.trace.trace import Kind, Trace

# The keys of a trace's meta under which what served it is kept: by operation, and by request where that differs.
_ALGORITHMS, _REQUESTS = "algorithms", "requests"
_TIMED = "timed by"  # ... by which words a run was timed, on which fabrics


@dataclass(frozen=True, eq=False, slots=True)
class RecordedChooser:
    """A chooser that gives each request the algorithm that it had when the trace was recorded."""

    by_request: Mapping[Request, AlgorithmOnDims]

    def __call__(self, request: Request) -> AlgorithmOnDims | None:
        """Return the algorithm that served a request; traces of an older Emu name no axis."""
        one = request._replace(groups=1)
        return self.by_request.get(one) or self.by_request.get(one._replace(axis=""))


def with_choice(trace: Trace, choice: Choice) -> Trace:
    """Return the trace with a note of the algorithms that served it.

    Raises:
        InputError: The algorithm depends on the request, and a rank did not make a request that others of its group made.
    """
    asked = {e.name[i] for e in trace.events for i in range(len(e)) if e.kind[i] == Kind.COLLECTIVE and e.step[i]}
    differs = choice.chooser or any(word != operation_of(word) for word in choice.by_operation)
    rows = [[*request, str(choice.algorithm_for(request))] for request in (collective_requests(trace) if differs else ())]
    fixed = asked.difference(operation for operation, *_ in rows)
    words = " ".join(f"{operation}={choice.algorithm_for(Request(operation, ()))}" for operation in sorted(fixed))
    noted = ((_ALGORITHMS, words), *([(_REQUESTS, json.dumps(rows))] if rows else []))
    return replace(trace, meta=(*trace.meta, *noted))


def with_words(trace: Trace, words: Sequence[str], topologies: Sequence[Topology], dtype: str) -> Trace:
    """Return the trace with a note of the values of `--algorithm` by which it was timed, and of the topologies."""
    noted = json.dumps([list(words), [_fabric(each, dtype) for each in topologies]])
    return replace(trace, meta=(*trace.meta, (_TIMED, noted)))


def words_of(trace: Trace, topology: Topology, dtype: str) -> tuple[str, ...] | None:
    """Return the values of `--algorithm` with which a run was timed on a topology; None if it was not timed there."""
    words, fabrics = json.loads(dict(trace.meta).get(_TIMED, "[[], []]"))
    return tuple(words) if _fabric(topology, dtype) in fabrics else None


def _fabric(topology: Topology, dtype: str) -> str:
    """Return a digest that identifies a topology and a dtype of messages in a trace."""
    return digest((topology.digest(), dtype))


def choice_of(trace: Trace) -> Choice:
    """Return the algorithms that served a trace when it ran.

    Raises:
        InputError: An algorithm is unknown here.
    """
    meta = dict(trace.meta)
    noted = Choice.parse(tuple(meta.get(_ALGORITHMS, "").split()))
    rows = json.loads(meta.get(_REQUESTS, "[]"))
    served = {Request(o, tuple(ranks), *rest): _served(o, word) for o, ranks, *rest, word in rows}
    return replace(noted, chooser=RecordedChooser(served)) if served else noted


def _served(operation: str, word: str) -> AlgorithmOnDims:
    """Return the algorithm that a trace notes; the name of a synthesised schedule, which may not be known here, is kept."""
    return AlgorithmOnDims(word) if word.startswith(f"{SYNTHESIZED}-") else AlgorithmOnDims.parse(operation, word)


def is_noted(trace: Trace) -> bool:
    """Return whether a trace contains the algorithms that served it."""
    return _ALGORITHMS in dict(trace.meta)


def is_synthesized(trace: Trace) -> bool:
    """Return whether synthesised schedules served some requests of a trace; no other place knows these."""
    rows = json.loads(dict(trace.meta).get(_REQUESTS, "[]"))
    return any(word.startswith(f"{SYNTHESIZED}-") for *_, word in rows)


def served_otherwise(trace: Trace, services: Sequence[Service]) -> bool:
    """Return whether some request of a trace had another algorithm when it was recorded."""
    if not is_noted(trace):
        return False
    ran = choice_of(trace)
    return any(ran.algorithm_for(each.request) != each.by for each in services)


def check_words(trace: Trace, words: Sequence[str], topologies: Sequence[Topology]) -> None:
    """Check that words of `--algorithm` fit a trace: its ranks ask for them, and groups of the axis can use them.

    Raises:
        InputError: As `check_axes`.
    """
    if not axes_named(words):
        return
    groups: dict[str, list[I64]] = {}
    for group in trace.groups:
        groups.setdefault(group.axis, []).append(np.array(group.ranks))
    first = np.unique(trace.role_of_rank, return_index=True)[1].tolist()  # all ranks of a role talk on the same axes
    axes = ((trace.events_of(rank), [trace.groups[i].axis for i in trace.group_of[rank]]) for rank in first)
    operations = operations_by_axis(axes)
    for topology in topologies:
        npus = place(topology, trace.n_ranks)
        on_npus = {axis: [npus[ranks].tolist() for ranks in own] for axis, own in groups.items()}
        check_axes(words, on_npus, operations, topology)


def choice_for(trace: Trace, words: Sequence[str], topology: Topology, dtype: str) -> Choice:
    """Return the choice of algorithms for a trace: those that words name, and the recorded ones for other operations.

    Raises:
        InputError: As `choice_of`, `choice_on` and `check_words`.
    """
    check_words(trace, words, [topology])
    return choice_on(topology, words, dtype, None if {*OWN_CHOOSERS} & {*words} else choice_of(trace))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmChange:
    """A change of algorithm for the requests of one axis, operation and range of sizes, against the default choice."""

    axis: str
    operation: str
    least_bytes: int
    most_bytes: int
    algorithm: str
    instead_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChoice:
    """The algorithms that a choice for the whole step changes, and the seconds that the step takes without these changes."""

    alone_step_time_s: float  # seconds of the step with the fastest algorithm for each request alone
    changed: tuple[AlgorithmChange, ...]
    free: tuple[str, ...] = ()  # the requests that no word served, such as `dp all_reduce`
