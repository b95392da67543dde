"""Every collective that takes four ranks against gloo in four processes, with every dtype and reduce operation of gloo's."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.reductions import unwritten_mark
from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.operation import OPERATIONS, REDUCING, ROUTED, Operation, operation
from emu.collective.schedule import Schedule
from tests.forked import Ended, Fork, script

SCRIPT = Path(__file__).parents[1] / "scripts" / "gloo_references.py"
N = 4
Request = tuple[str, torch.dtype, str, int, tuple[int, ...]]  # operation, dtype, reduce, root, counts of the blocks
Pairs = list[tuple[Tensor, Tensor]]  # input and gloo's output, by rank


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[Request, Pairs]:
    folder = tmp_path_factory.mktemp("gloo")
    given = {"GLOO_SOCKET_IFNAME": "lo", "WORLD_SIZE": str(N)}
    ranks = [Fork(folder, {**given, "RANK": str(rank)}, script, str(SCRIPT), str(folder)) for rank in range(N)]
    assert [rank.end() for rank in ranks] == [Ended(0, "", "")] * N
    saved = [dict(torch.load(folder / f"{rank}.pt")) for rank in range(N)]
    return {request: [of_rank[request] for of_rank in saved] for request in saved[0]}


def rounding(request: Request, given: list[Tensor]) -> list[Tensor] | None:
    """How far two orders of folding may be apart, by rank and element: N * eps of all that is folded; None: not at all."""
    name, dtype, reduce, _, counts = request
    if name not in REDUCING or reduce not in ("sum", "product") or not (dtype.is_floating_point or dtype.is_complex):
        return None
    sizes = torch.stack(given).abs().double()
    allowed = N * torch.finfo(dtype).eps * (sizes.prod(0) if reduce == "product" else sizes.sum(0))
    return list(allowed.split(counts)) if name == "reduce_scatter" else [allowed] * N


def check(schedule: Schedule, op: Operation, request: Request, pairs: Pairs) -> None:
    _, dtype, reduce, _, counts = request
    mark = unwritten_mark(dtype, reduce)
    made = {r: Buffers(given.clone(), torch.full_like(theirs, mark)) for r, (given, theirs) in enumerate(pairs)}
    execute(schedule, op, made, counts=np.array(counts), reduce=reduce)
    allowed = rounding(request, [given for given, _ in pairs])
    for rank, (_, theirs) in enumerate(pairs):
        ours = made[rank].output
        if allowed is None or len(theirs) == 0:
            assert torch.equal(ours, theirs), (request, rank)
        else:
            apart = (ours.to(torch.complex128) - theirs.to(torch.complex128)).abs()
            assert (apart <= allowed[rank]).all(), (request, rank)


def _compared(found: Algorithm) -> bool:
    """Gloo dispatches no tokens."""
    return found.operation not in ROUTED and any(True for _ in found.shapes(N))


@pytest.mark.parametrize("found", [pytest.param(a, id=key) for key, a in ALGORITHMS if _compared(a)])
def test_it_gives_what_gloo_gives(found: Algorithm, references: dict[Request, Pairs]):
    asked = [request for request in references if request[0] == found.operation]
    for shape, root in product(found.shapes(N), {root for *_, root, _ in asked}):
        schedule, op = found.schedule(shape, root), operation(found.operation, N, root)  # compiled once for all dtypes
        for request in asked:
            if request[3] == root:
                check(schedule, op, request, references[request])


def test_every_operation_and_every_dtype_of_gloo_is_among_what_is_compared(references: dict[Request, Pairs]):
    combined = {(name, dtype, reduce) for name, dtype, reduce, _, _ in references}
    assert {name for name, _, _ in combined} == set(OPERATIONS) - ROUTED
    assert len({dtype for _, dtype, _ in combined}) == 10
    assert {(name, reduce) for name, dtype, reduce in combined if dtype == torch.int64 and name in REDUCING} == {
        (name, reduce) for name in REDUCING - ROUTED for reduce in ("sum", "product", "min", "max", "and", "or", "xor")
    }
