import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from emu.collective.algorithm import Choice
from emu.errors import InputError
from launch.clusters import check_cluster, opened, run_on


def program(rank):
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    return tensor.item()


def test_local_ranks_run_one_job_after_another():
    with opened("local") as ranks:
        assert ranks.run(3, Choice(), program) == [3.0] * 3
        assert ranks.run(5, Choice(), program) == [10.0] * 5


def test_recorded_local_ranks_give_their_trace():
    results, trace = run_on("local")(3, Choice(), program)
    assert results == [3.0] * 3
    assert trace.n_ranks == 3
    assert "all_reduce" in trace.events[0].name


@pytest.mark.parametrize(
    ("word", "address", "message"),
    [
        ("rya", None, r"no cluster is called 'rya'; did you mean ray\?"),
        ("local", "1.2.3.4:6379", "--ray-address: the cluster must be ray where an address is given, got 'local'; add --clust"),
    ],
)
def test_a_word_that_names_no_cluster_is_refused_before_anything_starts(word, address, message):
    for ask in (check_cluster, run_on):
        with pytest.raises(InputError, match=message):
            ask(word, address)


def test_ray_is_loaded_only_where_it_is_asked_for():
    code = "import sys\nfrom launch.clusters import opened\nwith opened('local'):\n    assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
