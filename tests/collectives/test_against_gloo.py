"""Every collective that takes four ranks against gloo in four processes, with every dtype and reduce operation of gloo's."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from emu.backend.executor.execute import Buffers, execute
from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.operation import OPERATIONS, REDUCING, ROUTED, operation
from emu.collective.shape import Shape

SCRIPT = Path(__file__).parents[1] / "scripts" / "gloo_references.py"
N = 4
Request = tuple[str, torch.dtype, str, int, tuple[int, ...]]  # operation, dtype, reduce, root, counts of the blocks
Pairs = list[tuple[Tensor, Tensor]]  # input and gloo's output, by rank


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> dict[Request, Pairs]:
    folder = tmp_path_factory.mktemp("gloo")
    given = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [subprocess.Popen([sys.executable, "-W", "ignore", SCRIPT, folder, str(r), str(N)], env=given) for r in range(N)]
    try:
        assert [rank.wait(timeout=100) for rank in ranks] == [0] * N
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
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


def check(found: Algorithm, shape: Shape, request: Request, pairs: Pairs) -> None:
    name, _, reduce, root, counts = request
    made = {r: Buffers(given.clone(), torch.zeros_like(theirs)) for r, (given, theirs) in enumerate(pairs)}
    execute(found.schedule(shape, root), operation(name, N, root), made, counts=np.array(counts), reduce=reduce)
    allowed = rounding(request, [given for given, _ in pairs])
    for rank, (_, theirs) in enumerate(pairs):
        ours = made[rank].output
        if allowed is None or len(theirs) == 0:
            assert torch.equal(ours, theirs), (request, shape, rank)
        else:
            apart = (ours.to(torch.complex128) - theirs.to(torch.complex128)).abs()
            assert (apart <= allowed[rank]).all(), (request, shape, rank)


def _compared(found: Algorithm) -> bool:
    """Gloo dispatches no tokens."""
    return found.operation not in ROUTED and any(True for _ in found.shapes(N))


@pytest.mark.parametrize("found", [pytest.param(a, id=key) for key, a in ALGORITHMS if _compared(a)])
def test_it_gives_what_gloo_gives(found: Algorithm, references: dict[Request, Pairs]):
    asked = [request for request in references if request[0] == found.operation]
    for shape in found.shapes(N):
        for request in asked:
            check(found, shape, request, references[request])


def test_every_operation_and_every_dtype_of_gloo_is_among_what_is_compared(references: dict[Request, Pairs]):
    combined = {(name, dtype, reduce) for name, dtype, reduce, _, _ in references}
    assert {name for name, _, _ in combined} == set(OPERATIONS) - ROUTED
    assert len({dtype for _, dtype, _ in combined}) == 10
    assert {(name, reduce) for name, dtype, reduce in combined if dtype == torch.int64 and name in REDUCING} == {
        (name, reduce) for name in REDUCING - ROUTED for reduce in ("sum", "product", "min", "max", "and", "or", "xor")
    }
