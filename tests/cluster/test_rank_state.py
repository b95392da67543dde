"""State that a process has once, and each rank has for itself: torch's settings, and what a script finds of its process."""

import importlib
import os
import sys

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp._fully_shard import _fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_pre_hook

from emu.cluster.rank_state.rank_state import Attributes
from emu.cluster.script_run import run_script
from emu.cluster.threads.threads import ThreadRanks
from emu.errors import RunError


def entered(context):
    context.__enter__()
    return context


def forward_hooks_called():
    nn.Module.calls = 0
    nn.Identity()(1)
    return nn.Module.calls


def count_call(*_):
    nn.Module.calls += 1


def optimizer_hooks():
    return len(sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks)


CHANGES = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), lambda: torch.ones(1).dtype),
    "deterministic algorithms": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
    ),
    "anomaly detection": (lambda: entered(torch.autograd.set_detect_anomaly(True)), torch.is_anomaly_enabled),
    "attention kernels": (lambda: entered(sdpa_kernel(SDPBackend.MATH)), torch._C._get_flash_sdp_enabled),
    "attention kernels by priority": (
        lambda: entered(sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION], set_priority=True)),
        torch._C._get_sdp_priority_order,
    ),
    "precision of products": (lambda: torch.set_float32_matmul_precision("high"), torch.get_float32_matmul_precision),
    "TF32 of products": (
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: torch.backends.cuda.matmul.fp32_precision,
    ),
    "TF32 of convolutions": (
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: torch.backends.cudnn.allow_tf32,
    ),
    "precision of all": (
        lambda: setattr(torch.backends, "fp32_precision", "ieee"),
        lambda: (torch.backends.cudnn.rnn.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision),
    ),
    "mkldnn": (lambda: torch._C._set_mkldnn_enabled(False), torch._C._get_mkldnn_enabled),
    "hooks of all modules": (lambda: nn.modules.module.register_module_forward_pre_hook(count_call), forward_hooks_called),
    "hooks of all optimizers": (lambda: register_optimizer_step_pre_hook(count_call), optimizer_hooks),
    "cached parametrizations": (lambda: entered(parametrize.cached()), lambda: parametrize._cache_enabled),
    "handlers of DTensor": (
        lambda: entered(loss_parallel()),
        lambda: torch.ops.aten._log_softmax.default in DTensor._op_dispatcher._custom_op_handlers,
    ),
    "implicit replication": (
        lambda: entered(implicit_replication()),
        lambda: DTensor._op_dispatcher._allow_implicit_replication,
    ),
    "FSDP's new modules": (
        lambda: entered(_fully_shard.disable_fsdp_module_new_init()),
        lambda: _fully_shard._enable_fsdp_module_new_init,
    ),
    "early stop of checkpoints": (
        lambda: entered(torch.utils.checkpoint.set_checkpoint_early_stop(False)),
        lambda: torch.utils.checkpoint._enable_checkpoint_early_stop,
    ),
    "how tensors are printed": (lambda: torch.set_printoptions(precision=1, linewidth=5), lambda: str(torch.tensor(1.25))),
    "grad mode": (lambda: torch.set_grad_enabled(False), torch.is_grad_enabled),
    "inference mode": (lambda: entered(torch.inference_mode()), torch.is_inference_mode_enabled),
    "autocast": (lambda: entered(torch.autocast("cpu", torch.bfloat16)), lambda: torch.is_autocast_enabled("cpu")),
    "default device": (lambda: torch.set_default_device("meta"), lambda: torch.ones(1).device.type),
    "hooks of saved tensors": (
        lambda: entered(torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)),
        lambda: torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
    ),
}


@pytest.mark.parametrize(("change", "look"), CHANGES.values(), ids=CHANGES)
def test_what_one_rank_changes_is_not_another_s(change, look):
    kept = []

    def program(rank):
        seen = [look()]
        if rank == 1:
            kept.append(change())
        for _ in range(2):
            seen.append(look())
            dist.barrier()
        return seen

    first = look()
    before, changed, after = ThreadRanks(3).run(program)
    assert before == after == [first] * 3
    assert changed == [first, changed[1], changed[1]]
    assert changed[1] != first
    assert look() == first


def test_each_rank_s_own_hook_sees_its_own_modules_only():
    def program(rank):
        seen = []
        nn.modules.module.register_module_forward_pre_hook(lambda module, _: seen.append(module.number))
        for _ in range(2):
            layer = nn.Identity()
            layer.number = rank
            layer(1)
            dist.barrier()
        return seen

    assert ThreadRanks(3).run(program) == [[r, r] for r in range(3)]


@pytest.mark.parametrize("n", [2, 4])
def test_loss_parallel_has_the_loss_and_the_gradient_of_one_process(n):
    torch.manual_seed(0)
    whole, target = torch.randn(4, 16, requires_grad=True), torch.randint(16, (4,))
    expected = functional.cross_entropy(whole, target)
    expected.backward()

    def program(rank):
        mesh = init_device_mesh("cpu", (n,))
        share = whole.detach().chunk(n, 1)[rank].clone().requires_grad_()
        for _ in range(2):
            share.grad = None
            logits = DTensor.from_local(share, mesh, [Shard(1)], run_check=False)
            with loss_parallel():
                loss = functional.cross_entropy(logits, target)
                loss.backward()
        return loss.full_tensor().item(), share.grad

    losses, gradients = zip(*ThreadRanks(n).run(program), strict=True)
    assert list(losses) == pytest.approx([expected.item()] * n, rel=1e-6)
    assert torch.allclose(torch.cat(gradients, 1), whole.grad, atol=1e-6)


def test_attributes_of_a_module_that_a_rank_loads_are_as_loaded_for_the_others(tmp_path, monkeypatch):
    (tmp_path / "loaded_late.py").write_text("class Table:\n    handlers = {'a': 1}\nflag = False\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = Attributes({"loaded_late": ("Table.handlers", "flag")})
    before, first, second = own.save(), own.of(0), own.of(1)
    with own.watched():
        own.load(first)
        late = importlib.import_module("loaded_late")
        late.Table.handlers["b"], late.flag = 2, True
        first = own.save()
        own.load(second)
        assert (late.Table.handlers, late.flag) == ({"a": 1}, False)
        late.Table.handlers.clear()
        second = own.save()
        own.load(first)
        assert (late.Table.handlers, late.flag) == ({"a": 1, "b": 2}, True)
        own.load(before)
        assert (late.Table.handlers, late.flag) == ({"a": 1}, False)
    assert own not in sys.meta_path
    monkeypatch.delitem(sys.modules, "loaded_late")


@pytest.fixture
def run(tmp_path):
    def run(text, n=3, argv=()):
        script = tmp_path / "script.py"
        script.write_text(text)
        return run_script(script, argv, n)

    return run


SCRIPT_S = {
    "a variable": ("os.environ['WHO'] = str(rank)", "os.environ['WHO']", "str(rank)"),
    "no variable": ("rank or os.environ.pop('HOME')", "os.environ.get('HOME') is None", "rank == 0"),
    "the folder": ("os.mkdir(f'{top}/{rank}'); os.chdir(f'{top}/{rank}')", "os.getcwd()", "f'{top}/{rank}'"),
    "the arguments": ("sys.argv.append(rank)", "sys.argv[-1]", "rank"),
    "other arguments": ("sys.argv = ['x', rank]", "sys.argv", "['x', rank]"),
    "the path": ("sys.path.insert(0, f'/{rank}')", "sys.path[0]", "f'/{rank}'"),
    "print": ("builtins.print = lambda *_: rank", "print()", "rank"),
    "output": ("sys.stdout = io.StringIO(); print(rank, end='')", "sys.stdout.getvalue()", "str(rank)"),
    "errors": ("sys.stderr = io.StringIO(); print(rank, file=sys.stderr, end='')", "sys.stderr.getvalue()", "str(rank)"),
    "the level of the log": (
        "logging.getLogger().setLevel(logging.INFO if rank == 1 else logging.ERROR)",
        "logging.getLogger('a.b').isEnabledFor(logging.WARNING)",
        "rank == 1",
    ),
    "the log, disabled": (
        "rank == 1 or logging.disable()",
        "logging.getLogger('a.b').isEnabledFor(logging.CRITICAL)",
        "rank == 1",
    ),
    "a logger": ("logging.getLogger('mine').setLevel(10 + rank)", "logging.getLogger('mine').level", "10 + rank"),
    "the log's handlers": (
        "logging.getLogger().handlers = [logging.StreamHandler(out := io.StringIO())]; logging.warning('%s', rank)",
        "out.getvalue()",
        "f'{rank}\\n'",
    ),
    "the folder of temporary files": ("tempfile.tempdir = f'/{rank}'", "tempfile.gettempdir()", "f'/{rank}'"),
}


@pytest.mark.parametrize(("change", "look", "expected"), SCRIPT_S.values(), ids=SCRIPT_S)
def test_a_script_s_rank_has_its_own(run, tmp_path, monkeypatch, change, look, expected):
    monkeypatch.setenv("HOME", "/nowhere")
    before = dist.get_debug_level(), importlib.import_module("os").getcwd()
    run(
        f"""
import builtins, io, logging, os, sys, tempfile
import torch.distributed as dist
dist.init_process_group()
rank, top = dist.get_rank(), {str(tmp_path)!r}
assert logging.getLogger().isEnabledFor(logging.WARNING)
{change}
for _ in range(2):
    dist.barrier()
    found = {look}
    assert found == ({expected}), (rank, found)
"""
    )
    assert (dist.get_debug_level(), importlib.import_module("os").getcwd()) == before


class TestModules:
    def test_each_rank_imports_the_modules_beside_the_script_for_itself(self, run, tmp_path):
        (tmp_path / "parts").mkdir()
        (tmp_path / "parts" / "__init__.py").write_text("from .state import RANK\n")
        (tmp_path / "parts" / "state.py").write_text("import os\nRANK = int(os.environ['RANK'])\nseen = []\n")
        (tmp_path / "groups.py").write_text(
            "import torch.distributed as dist\n"
            "PAIRS, WORLD = [dist.new_group([0, 1]), dist.new_group([2, 3])], dist.group.WORLD\n"
        )
        run(
            """
import torch, torch.distributed as dist
dist.init_process_group()
import groups, parts
from parts import state
rank = dist.get_rank()
assert parts.RANK == state.RANK == rank
for _ in range(2):
    state.seen.append(rank)
    dist.barrier()
assert state.seen == [rank] * 2
x = torch.tensor([float(rank)])
dist.all_reduce(x, group=groups.PAIRS[rank // 2])
assert x.item() == (1 if rank < 2 else 5)
dist.all_reduce(x, group=groups.WORLD)
assert x.item() == 12
import parts.state
assert parts.state is state
""",
            n=4,
        )
        assert not {"parts", "parts.state", "groups"} & sys.modules.keys()

    def test_a_module_may_talk_to_the_other_ranks_while_it_is_imported(self, run, tmp_path):
        (tmp_path / "meets.py").write_text(
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group()\nTOTAL = torch.ones(1)\ndist.all_reduce(TOTAL)\n"
        )
        run("import meets, torch.distributed as d\nassert meets.TOTAL.item() == d.get_world_size() == 3")

    def test_an_object_of_another_rank_is_of_the_receiver_s_class(self, run, tmp_path):
        (tmp_path / "notes.py").write_text("class Note:\n    def __init__(self, text): self.text = text\n")
        run(
            """
import torch.distributed as dist
from notes import Note
dist.init_process_group()
got = [None] * 3
dist.all_gather_object(got, Note(dist.get_rank()))
assert [(type(g), g.text) for g in got] == [(Note, r) for r in range(3)]
"""
        )

    @pytest.mark.parametrize("where", ["venv/site-packages", "of-any-name"])
    def test_what_is_installed_is_imported_once(self, run, tmp_path, where):
        place = tmp_path / where
        (place / "it-1.0.dist-info").mkdir(parents=True)  # as `pip install --target` leaves it
        (place / "it-1.0.dist-info" / "RECORD").write_text("installed_once.py,sha256=a,34\nit-1.0.dist-info/RECORD,,\n")
        (place / "installed_once.py").write_text("import builtins\nseen = []\n")
        (place / "beside.py").write_text("RANKS = []\n")  # of nobody's record: the user's own
        try:
            run(
                f"""
import sys; sys.path.append({str(place)!r})
import torch.distributed as dist
dist.init_process_group()
import installed_once
installed_once.seen.append(dist.get_rank())
import beside
beside.RANKS.append(dist.get_rank())
dist.barrier()
assert installed_once.seen == [0, 1, 2]
assert beside.RANKS == ([0, 1, 2] if "site-packages" in beside.__file__ else [dist.get_rank()])
"""
            )
        finally:
            for name in ("installed_once", "beside"):
                sys.modules.pop(name, None)

    def test_an_error_in_a_module_is_its_rank_s(self, run, tmp_path):
        (tmp_path / "fails.py").write_text("import os\nif os.environ['RANK'] == '2':\n    raise ValueError('not here')\n")
        with pytest.raises(RunError, match="rank 2: ValueError: not here"):
            run("import torch.distributed as d\nd.init_process_group()\nimport fails\nd.barrier()")


STATES = tuple(f"{name}State" for name in ("Partial", "Accelerator", "Gradient"))
ONCE = {
    "accelerate/state.py": (STATES, "_shared_state", "from accelerate.state import {0} as owner"),
    "hydra/core/singleton.py": (("Singleton",), "_instances", "import hydra; owner = hydra.core.singleton.{0}"),
    "omegaconf/basecontainer.py": (("BaseContainer",), "_resolvers", "import omegaconf; owner = omegaconf.basecontainer.{0}"),
}


@pytest.mark.parametrize(("file", "owner"), [(file, owner) for file, (owners, *_) in ONCE.items() for owner in owners])
def test_what_a_library_keeps_once_a_process_is_a_ranks_own(tmp_path, monkeypatch, file, owner):
    owners, name, get = ONCE[file]
    module, top = tmp_path / "site-packages" / file, file.partition("/")[0]  # as it is installed: the ranks share it
    module.parent.mkdir(parents=True)
    module.write_text("".join(f"class {each}:\n    {name} = {{}}\n" for each in owners))
    rest = file.removeprefix(top + "/").removesuffix(".py").replace("/", ".")
    loads = "" if top == "accelerate" else f"import {top}.{rest} as own\nown.{owner}.{name}['before'] = 1\n"
    (tmp_path / "site-packages" / top / "__init__.py").write_text(loads)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    script = tmp_path / "script.py"
    script.write_text(f"""
import torch.distributed as dist
dist.init_process_group("gloo")
{get.format(owner)}
before = dict(owner.{name})
assert len(before) == {bool(loads):d}
owner.{name}["rank"] = dist.get_rank()
dist.barrier()
assert owner.{name} == {{**before, "rank": dist.get_rank()}}
""")
    try:
        assert run_script(script, [], 2)[1] == 0
    finally:
        for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == top]:
            del sys.modules[loaded]


def test_an_environment_that_a_rank_has_put_in_place_of_the_old_one_is_still_a_ranks_own(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "environ", os.environ)  # Hugging Face's datasets do so after a map by several processes
    script = tmp_path / "script.py"
    script.write_text("""
import copy, os, subprocess, torch.distributed as dist
dist.init_process_group("gloo")
rank = str(dist.get_rank())
os.environ["FIRST" + rank] = rank
os.environ = copy.deepcopy(os.environ)
for turn in range(3):
    os.environ["OWN"] = rank
    dist.barrier()
    assert os.environ["RANK"] == os.environ["OWN"] == os.getenv("FIRST" + rank) == rank
    assert subprocess.check_output("echo $RANK $OWN", shell=True, text=True) == f"{rank} {rank}\\n"
    assert sum(f"FIRST{other}" in os.environ for other in range(2)) == 1
""")
    assert run_script(script, [], 2)[1] == 0
    assert "OWN" not in os.environ
