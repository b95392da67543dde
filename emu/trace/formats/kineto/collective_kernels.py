"""The requests in a GPU's profile: NCCL's kernels, with the arguments of the operators that launched them."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import BareError
from emu.trace.formats.kineto.event_arguments import UNREADABLE, refusal
from emu.trace.formats.kineto.profiled_request import (
    NAMED,
    UNTOLD,
    Args,
    ProfiledRequest,
    operation_of,
    request_by_annotation,
    request_by_arguments,
    request_by_operator,
    root_and_tag,
)
from emu.trace.formats.kineto.rank_profile import ProfileSpans, RankProfile

_NCCL = ("nccl", "rccl")  # beginnings of the names of kernels that communicate
# Kernels that send by themselves: of DeepEP, PyTorch's symmetric memory, vLLM's custom all_reduce, FlashInfer and NVSHMEM. What
# the compiler writes is named by the operators that it fuses, so that its kernels have such names and send nothing.
_SENDING = re.compile(
    r"(?<!\w)(\w+::)*(\w*(multimem_\w*|one_shot_|two_shot_)all_\w+|cross_device_reduce\w*|\w*allreduce_fusion\w*|\w*nvshmem\w*"
    r"|(\w+_)?ep::(inter|intra)node\w*(::\w+)*)"
)
_PARTS_OF_NAMES = ("all_", "cross_device_reduce", "allreduce_fusion", "nvshmem", "ep::")  # one is in each name that it finds
_COMPILED = "triton_"
_OPERATOR = "c10d::"
_TOLD = "record_param_comms"
_ANNOTATION = "nccl:"
_TOLD_NAMES = 3  # names of kernels in a line
_MESSAGES = ("c10d::send", "c10d::recv")


def collective_rows(profile: RankProfile) -> I64:
    """Return the rows of the kernels that communicate, such as those of NCCL."""
    named = [n for n, name in enumerate(profile.names) if name.lower().startswith(_NCCL)]
    rows = np.isin(profile.kernels.name, named)
    for row in np.flatnonzero(~rows).tolist() if not named else ():
        rows[row] = NAMED in profile.args.get(int(profile.kernels.event[row]), {})
    return np.flatnonzero(rows)


def sending_kernels(profile: RankProfile) -> str:
    """Return a note on kernels that send data without NCCL, whose bytes a profile does not have; "" if there are none."""
    asked = [(n, name) for n, name in enumerate(profile.names) if any(part in name for part in _PARTS_OF_NAMES)]
    named = {n: _SENDING.search(name) for n, name in asked if not name.startswith(_COMPILED)}
    words = {n: found[0] for n, found in named.items() if found}
    count = Counter(words[n] for n in profile.kernels.name.tolist() if n in words)
    told = ", ".join(word for word, _ in count.most_common(_TOLD_NAMES))
    kernels = "kernel that sends" if count.total() == 1 else "kernels that send"
    return f"{count.total():,} {kernels} data without NCCL ({told})" if count else ""


def requests_of_kernels(profile: RankProfile, rows: I64) -> dict[int, tuple[ProfiledRequest, ...]]:
    """Return the requests that each communication kernel carries out, by the kernel's row.

    Several kernels can be launched by one call of c10d. The first of them has all requests of the call, the others have none.

    Args:
        profile: The profile.
        rows: The rows of these kernels, as `collective_rows` returns them.

    Raises:
        InputError: The profile does not say what a kernel sends; the error names the kernel.
    """
    rows = np.intersect1d(rows, collective_rows(profile))
    operators, told = (_enclosing(profile, profile.operators, rows, word) for word in (_OPERATOR, _TOLD))
    annotations = _enclosing(profile, profile.annotations, rows, _ANNOTATION)
    coalesced = _coalesced(profile, rows)
    found: dict[int, tuple[ProfiledRequest, ...]] = {}
    known: set[int] = set()
    for row in rows[np.argsort(profile.kernels.start[rows], kind="stable")].tolist():
        operator, said, annotation = (of.get(row, _NOTHING) for of in (operators, told, annotations))
        around = _Around(operator, said, annotation, coalesced.get(row, ()))
        found[row] = () if around.operator.event in known else _requests(profile, row, around)
        known |= {around.operator.event} - {-1}
    return found


class _Host(NamedTuple):
    """An operator or annotation of the host: its name, its event number in the file, and its arguments."""

    name: str
    event: int
    args: Args


_NOTHING = _Host("", -1, {})


class _Around(NamedTuple):
    """The entries of the profile's host side within which a communication kernel was launched.

    `operator` is that of c10d, `told` is `record_param_comms` with the arguments, `annotation` is that of NCCL. `before` has
    the operators of messages that the host called since the launch of the previous kernel.
    """

    operator: _Host  # the operator of c10d: shapes, root and peer
    told: _Host  # record_param_comms, which says all in newer profiles
    annotation: _Host  # of nccl: it says the operation, and the shape of the first tensor
    before: tuple[_Host, ...]  # operators of messages that the host made after the launch of the kernel before


def _requests(profile: RankProfile, row: int, around: _Around) -> tuple[ProfiledRequest, ...]:
    event, name, size = int(profile.kernels.event[row]), profile.names[profile.kernels.name[row]], profile.world or 1
    operator = around.operator.args if operation_of(around.operator.name) == "all_to_all" else {}
    try:
        for args in (_own_arguments(profile.args.get(event, {}), around.told.args), around.told.args):
            if operation_of(str(args.get(NAMED, ""))):
                return (_with_root(request_by_arguments(args, profile.groups, operator), around.operator),)
        if around.annotation.args.get("Input Dims"):
            asked = request_by_annotation(around.annotation.name, around.annotation.args, size)
            return (_with_root(asked, around.operator),)
        if around.operator.event >= 0:
            return (request_by_operator(around.operator.name, around.operator.args, "", size),)
        if not around.before:
            raise BareError("has no 'Collective name', and no operator of c10d around its launch")
        return tuple(_message(profile, each) for each in around.before)
    except (BareError, *UNREADABLE) as error:
        raise refusal(f"{profile.where(event, name)} of {profile.file!r}", error) from None


def _own_arguments(own: Args, told: Args) -> Args:
    """Return the arguments of a kernel, and those that only `record_param_comms` around it has, if it tells of one call."""
    return {**told, **own} if own.get(NAMED) == told.get(NAMED) else own


def _message(profile: RankProfile, operator: _Host) -> ProfiledRequest:
    """Return one of several messages that a single kernel sends; its arguments are inside its operator."""
    told = _inside(profile, operator.event)
    return _with_root(request_by_arguments(told, profile.groups), operator)


def _inside(profile: RankProfile, event: int) -> Args:
    """Return the arguments of the `record_param_comms` that an operator holds.

    Raises:
        BareError: it holds none.
    """
    spans = profile.operators
    at = int(np.searchsorted(spans.event, event))
    inside = (spans.place == spans.place[at]) & (spans.start >= spans.start[at]) & (spans.start <= spans.end[at])
    for row in np.flatnonzero(inside).tolist():
        args = profile.args.get(int(spans.event[row]), {})
        if NAMED in args:
            return args
    raise BareError(f"sends several messages, of which event {event} does not say 'Collective name'")


def _coalesced(profile: RankProfile, rows: I64) -> dict[int, tuple[_Host, ...]]:
    """Return, by row, the operators of the messages that one kernel sends together, as after `batch_isend_irecv`.

    These are the messages that the host made between the launch of the kernel before and this launch.
    """
    launch, spans = profile.launch, profile.operators
    wanted = [n for n, name in enumerate(profile.names) if name.startswith(_MESSAGES)]
    own = spans.take(np.isin(spans.name, wanted))
    own = own.take(np.argsort(own.start, kind="stable"))
    found: dict[int, tuple[_Host, ...]] = {}
    since: dict[int, float] = {}
    launched = rows[launch[rows] >= 0]
    for row in launched[np.argsort(profile.calls.start[launch[launched]], kind="stable")].tolist():
        thread, moment = int(profile.calls.place[launch[row]]), float(profile.calls.start[launch[row]])
        low = since.get(thread, -np.inf)
        made = np.flatnonzero((own.place == thread) & (own.start > low) & (own.end <= moment))
        events = own.event[made].tolist()
        hosts = zip((profile.names[n] for n in own.name[made].tolist()), events, strict=True)
        found[row] = tuple(_Host(name, event, profile.args.get(event, {})) for name, event in hosts)
        since[thread] = moment
    return found


def _with_root(asked: ProfiledRequest, operator: _Host) -> ProfiledRequest:
    """Return the request with its root, or its peer and tag, from the arguments of its operator if the profile has them."""
    if not operator.args.get("Concrete Inputs") or operation_of(operator.name) != asked.operation:
        return asked
    root, tag = root_and_tag(asked.operation, operator.args)
    return asked._replace(root=asked.root if root == UNTOLD else root, tag=tag)


def _enclosing(profile: RankProfile, spans: ProfileSpans, rows: I64, word: str) -> Mapping[int, _Host]:
    """Return, for each kernel, the innermost span in which the host launched it and whose name begins with `word`.

    Args:
        profile: The profile.
        spans: The spans that are searched, of operators or of annotations.
        rows: The rows of the kernels.
        word: The beginning of the names.

    Returns:
        The spans by row of the kernel; a kernel without such a span is left out.
    """
    launch = profile.launch
    wanted = [n for n, name in enumerate(profile.names) if name.startswith(word)]
    found: dict[int, _Host] = {}
    own = spans.take(np.isin(spans.name, wanted))
    launched = rows[launch[rows] >= 0]
    for thread in np.unique(own.place).tolist():
        of_thread = own.take(own.place == thread)
        of_thread = of_thread.take(np.argsort(of_thread.start, kind="stable"))
        here = launched[profile.calls.place[launch[launched]] == thread]
        moment = profile.calls.start[launch[here]]
        at = np.searchsorted(of_thread.start, moment, side="right") - 1
        inside = (at >= 0) & (moment <= of_thread.end[np.maximum(at, 0)])
        for row, place in zip(here[inside].tolist(), at[inside].tolist(), strict=True):
            event = int(of_thread.event[place])
            found[row] = _Host(profile.names[of_thread.name[place]], event, profile.args.get(event, {}))
    return found
