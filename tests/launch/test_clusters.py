import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from emu.collective.choice import Choice
from emu.errors import InputError
from launch.clusters import ClusterOptions


def program(rank):
    tensor = torch.tensor([float(rank)])
    dist.all_reduce(tensor)
    return tensor.item()


def test_local_ranks_run_one_job_after_another():
    with ClusterOptions().open_cluster() as ranks:
        assert ranks.run(3, Choice(), program) == [3.0] * 3
        assert ranks.run(5, Choice(), program) == [10.0] * 5


def test_recorded_local_ranks_give_their_trace():
    results, trace = ClusterOptions().run_traced(3, Choice(), program)
    assert results == [3.0] * 3
    assert trace.n_ranks == 3
    assert "all_reduce" in trace.events[0].name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("rya",), r"no cluster is called 'rya'; did you mean ray\?"),
        (
            ("local", "1.2.3.4:6379"),
            "--ray-address: --cluster must be ray with this option, got 'local'; add --cluster ray",
        ),
        (("local", None, 2), "--ranks-per-actor: --cluster must be ray with this option, got 'local'"),
        (("ray", None, 0), "run: --ranks-per-actor must be 1 or more, got 0"),
    ],
)
def test_what_names_no_cluster_is_refused_before_anything_starts(given, message):
    with pytest.raises(InputError, match=message):
        ClusterOptions(*given)


def test_ray_is_loaded_only_where_it_is_asked_for():
    opened = "with ClusterOptions().open_cluster():\n    assert 'ray' not in sys.modules"
    code = f"import sys\nfrom launch.clusters import ClusterOptions\n{opened}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
