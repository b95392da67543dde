"""PyTorch's ProcessGroup for Emu: every method submits a request; methods that are not emulated raise an error."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from time import monotonic
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeProcessGroup, _resolve_process_group

from emu.backend.rank import rank_requests
from emu.backend.rank.operator_counter import pause_counting
from emu.backend.rank.rank_requests import Members, RankRequest
from emu.backend.rank.request_work import CoalescedWork, RequestWork, sum_sparse
from emu.backend.rank.source_lines import caller, in_brackets
from emu.dtypes import check_reduces, reductions_of
from emu.errors import InputError, RunError, must_be

BACKEND = "emu"
_REDUCES = frozenset({"all_reduce", "reduce", "reduce_scatter"})
_ProcessGroup: Any = dist.ProcessGroup  # the stubs give its methods overloads that no caller inside PyTorch uses


class EmuProcessGroup(_ProcessGroup):  # type: ignore[misc]
    """The process group `emu` of one rank.

    The ranks of a process are threads that share modules. So a rank may hold the object of another rank, such as the default
    argument of a function in a module that the first rank has imported. For a rank that uses it, such an object stands for the
    rank's own group of the same name and members.

    Args:
        options: PyTorch's options of a backend: store, rank, size, global ranks.
        start: A function that starts a request of a rank, and returns its work.
    """

    def __init__(self, options: Any, start: Callable[[RankRequest], RequestWork]) -> None:
        size = options.group_size
        super().__init__(options.group_rank, size)
        self.axis: str | None = None  # set by a mesh that has no own group for a dim
        self._named: tuple[str | None, Members] | None = None  # the axis for which it was made, and the group
        self._coalesced: list[RequestWork] | None = None  # the works since coalescing began
        self._store = options.store
        self._start_request = start
        self._place = options.group_rank
        self._ranks = tuple(options.global_ranks_in_group) or tuple(range(size))
        self._known_as = (options.group_id, self._ranks)
        # Without a native backend inside, PyTorch finds neither a group's name nor its devices. It must not be one that
        # works: a method forgotten here would run there, unrecorded.
        inner = FakeProcessGroup._create_internal(self._place, size)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, inner)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, EmuProcessGroup) and self._known_as == other._known_as)

    def __hash__(self) -> int:
        return hash(self._known_as)

    @property
    def _own_group(self) -> "EmuProcessGroup | None":
        """The caller's own group object with this name and these members; None if it has none."""
        try:
            found = _resolve_process_group(self._known_as[0])
        except RuntimeError:
            return None
        return found if isinstance(found, EmuProcessGroup) and found == self else None

    @property
    def _rank(self) -> int:
        """The caller's rank in the group."""
        return int((self._own_group or self)._place)

    @property
    def members(self) -> Members:
        """The group as it is named in requests, with the mesh axis that it belongs to."""
        if self._named is None or self._named[0] != self.axis:  # every request needs it
            self._named = self.axis, Members(self.group_name, self._ranks, self.axis or self._axis_name)
        return self._named[1]

    @property
    def _axis_name(self) -> str:
        """The axis of the plan, such as `dp`, in PyTorch's description of the group; "" if it has none."""
        described = str(self.group_desc)
        if described == "default_pg":
            return "world"
        mesh_dim = described.removeprefix("mesh_")
        return mesh_dim if mesh_dim != described and not mesh_dim.startswith("dim_") else ""

    def _make_and_submit(self, make: Callable[..., RankRequest], *given: Any) -> RequestWork:
        asked_s = monotonic()  # the time spent here is not the program's
        try:
            with pause_counting():
                made = make(*given)
                _check(made)
        except InputError as error:
            raise self._refusal(error) from None
        return self.submit(made, asked_s)

    def _refusal(self, error: InputError) -> RunError:
        """Return the error of an impossible request, with the rank and the line of the program."""
        return RunError(f"rank {self._ranks[self._rank]}: {error}{in_brackets(caller())}")

    def submit(self, made: RankRequest, asked_s: float | None = None) -> RequestWork:
        """Start a request, also one for which PyTorch has no method, such as one with separate input and output.

        Args:
            made: The request.
            asked_s: The time of the program's request, by this host's monotonic clock; None: now.

        Raises:
            RunError: the caller has no such group.
        """
        own = self._own_group
        if own is None:
            name, ranks = self._known_as
            raise RunError(
                f"{made.name}: group {name} of ranks {ranks} is no group of the caller; every rank must make its own"
            )
        work = own._start_request(made.on(own.members, own._place, caller(), monotonic() if asked_s is None else asked_s))
        if own._coalesced is not None:
            own._coalesced.append(work)
        return work

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> RequestWork | CoalescedWork:
        """Start to reduce in place over all ranks; a sparse tensor is summed."""
        if len(tensors) == 1 and tensors[0].layout == torch.sparse_coo:
            return self._sum_sparse(tensors[0], _op(opts))
        return self._make_and_submit(rank_requests.all_reduce, tensors, _op(opts))

    def _sum_sparse(self, tensor: Tensor, op: Any) -> CoalescedWork:
        several = (self._own_group or self)._coalesced is not None
        try:
            if op != dist.ReduceOp.SUM or several:
                got = "several at once" if several else rank_requests.REDUCE_OF.get(getattr(op, "op", op), str(op))
                raise must_be("all_reduce", "the reduction of a sparse tensor", "sum, of one tensor at a time", got)
            return sum_sparse(tensor, self.size(), self.allgather)
        except InputError as error:
            raise self._refusal(error) from None

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to reduce several tensors in place over all ranks, in one request."""
        return self._make_and_submit(rank_requests.all_reduce, tensors, _op(opts))

    def broadcast(self, tensors: list[Tensor], opts: Any) -> RequestWork:
        """Start to copy the root's tensors to the tensors of all ranks of the group."""
        return self._make_and_submit(rank_requests.broadcast, tensors, opts.rootRank, self._rank)

    def reduce(self, tensors: list[Tensor], opts: Any) -> RequestWork:
        """Start to reduce the tensors of all ranks of the group onto the root."""
        return self._make_and_submit(rank_requests.reduce, tensors, opts.reduceOp, opts.rootRank, self._rank)

    def allgather(self, output_lists: list[list[Tensor]], tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to gather a tensor of every rank into a list; the sizes may differ."""
        return self._make_and_submit(rank_requests.all_gather, [[t] for t in output_lists[0]], tensors)

    def allgather_coalesced(self, output_lists: list[list[Tensor]], tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to gather several tensors of every rank, with one list for each rank."""
        return self._make_and_submit(rank_requests.all_gather, output_lists, tensors)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> RequestWork:
        """Start to gather the equal tensors of all ranks in one output tensor, in the order of ranks."""
        return self._make_and_submit(rank_requests.all_gather_single, [output], [tensor], self.size())

    def all_gather_single_coalesced(self, outputs: list[Tensor], tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to gather several tensors of every rank, each in the output tensor of its number."""
        return self._make_and_submit(rank_requests.all_gather_single, outputs, tensors, self.size())

    def reduce_scatter(self, outputs: list[Tensor], input_lists: list[list[Tensor]], opts: Any = None) -> RequestWork:
        """Start to reduce the r-th tensor of every list onto rank r; the sizes may differ."""
        return self._make_and_submit(rank_requests.reduce_scatter, outputs, input_lists, _op(opts))

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> RequestWork:
        """Start to reduce a tensor over all ranks and leave the r-th share of it to rank r."""
        return self._make_and_submit(rank_requests.reduce_scatter_single, [output], [tensor], _op(opts), self.size())

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to reduce several tensors over all ranks and leave the r-th share of each to rank r."""
        return self._make_and_submit(rank_requests.reduce_scatter_single, outputs, tensors, _op(opts), self.size())

    def alltoall(self, outputs: list[Tensor], tensors: list[Tensor], opts: Any = None) -> RequestWork:
        """Start to exchange a tensor with every rank; the sizes may differ."""
        return self._make_and_submit(rank_requests.all_to_all, outputs, tensors, self._rank)

    def all_to_all_single(
        self, output: Tensor, tensor: Tensor, output_splits: Sequence[int], input_splits: Sequence[int], opts: Any = None
    ) -> RequestWork:
        """Start to exchange blocks of a tensor along its first dim: block r goes to rank r.

        Without splits all blocks are equal.
        """
        return self._make_and_submit(
            rank_requests.all_to_all_single, output, tensor, output_splits, input_splits, self._rank, self.size()
        )

    def gather(self, output_lists: list[list[Tensor]], tensors: list[Tensor], opts: Any) -> RequestWork:
        """Start to gather a tensor of every rank on the root."""
        outputs = output_lists[0] if output_lists else []
        return self._make_and_submit(rank_requests.gather, outputs, tensors[0], opts.rootRank, self._rank)

    def scatter(self, outputs: list[Tensor], input_lists: list[list[Tensor]], opts: Any) -> RequestWork:
        """Start to send each rank its tensor of the root's list."""
        inputs = input_lists[0] if input_lists else []
        return self._make_and_submit(rank_requests.scatter, outputs[0], inputs, opts.rootRank, self._rank)

    def barrier(self, opts: Any = None) -> RequestWork:
        """Start a barrier, whose work is done when all ranks of the group have called it."""
        return self._make_and_submit(rank_requests.barrier)

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> RequestWork:
        """Start to send a tensor; the work is done when the tensor has been received."""
        return self._make_and_submit(rank_requests.send, tensors[0], dst, tag)

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> RequestWork:
        """Start to receive a tensor from rank `src` of the group."""
        return self._make_and_submit(rank_requests.receive, tensors[0], src, tag)

    # The names before PyTorch 2.13.
    _allgather_base = all_gather_single
    _reduce_scatter_base = reduce_scatter_single
    alltoall_base = all_to_all_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> RequestWork:
        """Start to receive a tensor from whichever rank sends first."""
        return self._make_and_submit(rank_requests.receive, tensors[0], rank_requests.ANY, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Block until all ranks of the group have called it. An error is raised if a rank can never call it."""
        self.barrier().wait()

    def split_group(self, ranks: Sequence[int], timeout: timedelta | None = None, *args: Any, **options: Any) -> Any:
        """Return a new group of the given ranks of this group, in their order in it; None on the other ranks."""
        if self._rank not in ranks:
            return None
        members, about = [self._ranks[rank] for rank in sorted(ranks)], options.get("group_desc")
        return dist.new_group(members, timeout, use_local_synchronization=True, group_desc=about, sort_ranks=False)

    def merge_remote_group(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error, because all ranks of a job are known from the start."""
        raise NotImplementedError("emu: merge_remote_group is not emulated; take new_group")

    def _start_coalescing(self, device: torch.device) -> None:
        (self._own_group or self)._coalesced = []

    def _end_coalescing(self, device: torch.device) -> CoalescedWork:
        own = self._own_group or self
        works, own._coalesced = own._coalesced or [], None
        return CoalescedWork(works)

    def shutdown(self) -> None:
        """Do nothing, because the group has no connection to close."""

    abort = shutdown

    def set_timeout(self, timeout: timedelta) -> None:
        """Do nothing, because an absent rank is detected at once, without a timeout."""

    def rank(self) -> int:
        """Return the caller's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Return the number of ranks of the group."""
        return len(self._ranks)

    def name(self) -> str:
        """Return the backend's name."""
        return BACKEND

    getRank, getSize, getBackendName = rank, size, name  # the names in C++

    def get_group_store(self) -> Any:
        """Return the store with which the group was made."""
        return self._store


def _check(made: RankRequest) -> None:
    """Check that no two elements of a request's result tensors share memory, and that its dtype can be reduced.

    Raises:
        InputError: One of these does not hold.
    """
    rank_requests.check_written(made)
    if made.operation in _REDUCES:
        dtype = rank_requests.dtype_name(made.dtype)
        check_reduces(made.name, dtype, made.reduce, reductions_of(dtype))


def _op(opts: Any) -> Any:
    return dist.ReduceOp.SUM if opts is None else opts.reduceOp
