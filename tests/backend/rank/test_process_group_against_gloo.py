"""Against gloo: the same script, `tests/scripts/every_method.py`, in three processes of gloo and on three threads."""

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from emu.backend.rank.process_group import EmuProcessGroup
from emu.cluster.script_run import run_script
from tests.cluster.gloo import run_on_gloo

SCRIPT = Path(__file__).parents[2] / "scripts" / "every_method.py"
N = 3
METHODS = [
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "allgather",
    "allgather_coalesced",
    "all_gather_single",
    "all_gather_single_coalesced",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "alltoall",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
    "send",
    "recv",
    "recv_anysource",
    "monitored_barrier",
    "split_group",
    "merge_remote_group",
    "shutdown",
    "abort",
    "set_timeout",
    "size",
    "rank",
    "name",
    "getBackendName",
    "get_group_store",
    "_allgather_base",
    "_reduce_scatter_base",
    "alltoall_base",
    "allgather_into_tensor_coalesced",
    "reduce_scatter_tensor_coalesced",
    "_start_coalescing",
    "_end_coalescing",
]
# What is asked of the fake group inside on purpose: names, devices, sequence numbers, no communication.
INNER = [
    "BackendType",
    "CUSTOM",
    "GLOO",
    "MPI",
    "NCCL",
    "UCC",
    "UNDEFINED",
    "XCCL",
    "_backend_id",
    "_device_types",
    "_enable_collectives_timing",
    "_get_backend",
    "_get_backend_name",
    "_get_sequence_number_for_group",
    "_has_hooks",
    "_id",
    "_pybind11_conduit_v1_",
    "_register_backend",
    "_register_on_completion_hook",
    "_set_default_backend",
    "_set_group_desc",
    "_set_group_name",
    "_set_sequence_number_for_group",
    "_wait_for_pending_works",
    "bound_device_id",
    "boxed",
    "group_desc",
    "group_name",
    "unbox",
    "use_pg_for_symm_mem_rendezvous",
]


def test_every_method_of_a_process_group_is_its_own():
    """A method left out would run on the fake group inside, do nothing and be recorded nowhere."""
    assert [name for name in METHODS if name not in vars(EmuProcessGroup)] == []
    of_pytorch = {name for name in dir(dist.ProcessGroup) if not name.startswith("__")}
    assert of_pytorch - set(METHODS) - set(INNER) == set()


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """[(what gloo gave, what ours gave)] by rank."""
    folders = tmp_path_factory.mktemp("gloo"), tmp_path_factory.mktemp("ours")
    run_on_gloo(SCRIPT, folders[0], N)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the script says some methods by their old names
        _, code = run_script(SCRIPT, [str(folders[1])], N)
    assert code == 0
    return [tuple(torch.load(folder / f"{rank}.pt") for folder in folders) for rank in range(N)]


def test_every_method_gives_what_gloo_gives(both):
    compared = 0
    for theirs, ours in both:
        assert theirs.keys() == ours.keys()
        for name in theirs.keys() - {"objects"}:
            assert len(theirs[name]) == len(ours[name]), name
            for a, b in zip(theirs[name], ours[name], strict=True):
                assert a.dtype == b.dtype, name
                assert torch.equal(a, b), name
                compared += 1
    assert compared > 150


def test_object_collectives_give_what_gloo_gives(both):
    assert [ours["objects"] for _, ours in both] == [theirs["objects"] for theirs, _ in both]
    assert len({ours["objects"] for _, ours in both}) == N
