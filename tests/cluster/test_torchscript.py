"""Scripts of which TorchScript compiles parts, or that look PyTorch's functions up in tables of their own."""

import sys
from pathlib import Path

import pytest
import torch
from torch.jit import _builtins

from emu.cluster.npu.npu import Node, Npu, device_argument_replacements
from emu.cluster.script_run import run_script
from emu.errors import RunError
from tests.cluster.gloo import run_on_gloo

OPTIMIZERS = Path(__file__).parents[1] / "scripts" / "optimizers.py"
N = 2
# A call of each function that makes tensors and is another one while ranks run, as TorchScript compiles it.
COMPILED = {
    "arange": "torch.arange(3{})",
    "bartlett_window": "torch.bartlett_window(3{})",
    "blackman_window": "torch.blackman_window(3{})",
    "empty": "torch.empty([2]{}).fill_(1)",
    "empty_like": "torch.empty_like(x{}).fill_(1)",
    "empty_permuted": "torch.empty_permuted([2, 3], [1, 0]{}).fill_(1)",
    "empty_strided": "torch.empty_strided([2], [1]{}).fill_(1)",
    "eye": "torch.eye(3{})",
    "fftfreq": "torch.fft.fftfreq(3{})",
    "full": "torch.full([2], 1.0{})",
    "full_like": "torch.full_like(x, 1.0{})",
    "hamming_window": "torch.hamming_window(3{})",
    "hann_window": "torch.hann_window(3{})",
    "kaiser_window": "torch.kaiser_window(3{})",
    "linspace": "torch.linspace(0, 1, 3{})",
    "logspace": "torch.logspace(0, 1, 3{})",
    "ones": "torch.ones([2]{})",
    "ones_like": "torch.ones_like(x{})",
    "rand": "torch.rand([2]{})",
    "rand_like": "torch.rand_like(x{})",
    "randint": "torch.randint(1, 2, [2]{})",
    "randint_like": "torch.randint_like(x, 1, 2{})",
    "randn": "torch.randn([2]{})",
    "randn_like": "torch.randn_like(x{})",
    "randperm": "torch.randperm(3{})",
    "range": "torch.range(0, 2{})",
    "rfftfreq": "torch.fft.rfftfreq(3{})",
    "scalar_tensor": "torch.scalar_tensor(1.0{})",
    "sparse_coo_tensor": "torch.sparse_coo_tensor(torch.zeros([1, 2], dtype=torch.int64), x, [3]{}).to_dense()",
    "tensor": "torch.tensor([1.0, 2.0]{})",
    "tril_indices": "torch.tril_indices(2, 2{})",
    "triu_indices": "torch.triu_indices(2, 2{})",
    "zeros": "torch.zeros([2]{})",
    "zeros_like": "torch.zeros_like(x{})",
    "as_tensor": "torch.as_tensor([1.0, 2.0]{})",
    "empty_quantized": "torch.empty_quantized([0], torch.quantize_per_tensor(x, 1.0, 0, torch.qint8){}).dequantize()",
    "sparse_bsc_tensor": "torch.sparse_bsc_tensor(a, b, v.reshape(2, 1, 1), [2, 2]{}).to_dense()",
    "sparse_bsr_tensor": "torch.sparse_bsr_tensor(a, b, v.reshape(2, 1, 1), [2, 2]{}).to_dense()",
    "sparse_compressed_tensor": "torch.sparse_compressed_tensor(a, b, v, [2, 2], layout=torch.sparse_csr{}).to_dense()",
    "sparse_csc_tensor": "torch.sparse_csc_tensor(a, b, v, [2, 2]{}).to_dense()",
    "sparse_csr_tensor": "torch.sparse_csr_tensor(a, b, v, [2, 2]{}).to_dense()",
}
# PyTorch itself compiles no call of these; those are compiled, and find no device of CUDA's before they ask for an operator.
NEVER = {"asarray", "nested_tensor"}
OUT_OF_REACH = ("as_tensor", "tensor", *(name for name in COMPILED if name.startswith(("sparse_bs", "sparse_cs"))))
BEGIN = """
import warnings
import torch, torch.distributed as dist
from torch import Tensor
warnings.simplefilter("ignore")  # some functions are old, or new
dist.init_process_group("gloo")
x, a, b, v = torch.ones(2), torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.ones(2)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a text as a script, after the usual beginning; what TorchScript has compiled of PyTorch is compiled anew."""
    for name in [name for name in sys.modules if name.startswith("torch.distributed.optim")]:
        monkeypatch.delitem(sys.modules, name)

    def run(text):
        (tmp_path / "script.py").write_text(BEGIN + text)
        _, code = run_script(tmp_path / "script.py", [str(tmp_path)], N)
        assert code == 0

    return run


def compiled(name, device):
    body = COMPILED[name].format(device)
    return f"def {name}(x: Tensor, a: Tensor, b: Tensor, v: Tensor):\n    return {body}\n"


def test_every_function_that_makes_tensors_is_compiled_by_torchscript_or_never_was():
    names = {name for _, name, made in device_argument_replacements(Node(N, Npu())) if type(made).__name__ == "Constructor"}
    assert names == COMPILED.keys() | NEVER
    assert not COMPILED.keys() & NEVER


@pytest.mark.parametrize("device", ["", ', device="cuda"', ", device=torch.device('cuda', 1)"])
def test_what_torchscript_compiles_makes_tensors_on_the_npu_of_the_rank(run, device):
    names = [name for name in COMPILED if not (device and name in OUT_OF_REACH)]
    run(
        "".join(compiled(name, device) for name in names)
        + f"""
for each in ({", ".join(names)},):
    torch.manual_seed(0)
    expected = each(x, a, b, v)
    torch.manual_seed(0)
    got = torch.jit.script(each)(x, a, b, v)
    assert got.device.type == "cpu" and torch.equal(got, expected), each
"""
    )


WAYS = "def moved(x: Tensor):\n    return x.{}\nassert torch.jit.script(moved)\nmoved(x)\ntorch.jit.script(moved)(x)"


@pytest.mark.parametrize(
    "text",
    [
        *(
            compiled(name, ', device="cuda"') + f"{name}(x, a, b, v)\ntorch.jit.script({name})(x, a, b, v)"
            for name in OUT_OF_REACH
        ),
        *(WAYS.format(way) for way in ("cuda()", "to('cuda')")),
    ],
)
def test_a_device_that_torchscript_looks_for_itself_is_refused_in_one_line(run, text):
    with pytest.raises(RunError) as error:
        run(text)
    number = len((BEGIN + text).splitlines())
    assert str(error.value).startswith("rank 0: cuda: a function that TorchScript has compiled asks for a CUDA device, ")
    assert str(error.value).endswith(f"script.py:{number})")


MORE = {
    "a module of PyTorch's": """
layer = torch.nn.TransformerEncoderLayer(4, 2, dropout=0.0)
given = torch.ones(2, 2, 4)
assert torch.allclose(torch.jit.script(layer)(given), layer(given))
""",
    "a device that it is given": """
def moved(x: Tensor, d: torch.device):
    return torch.zeros_like(x, device=d) + x.to(x.device) + x.new_zeros([2], device=d)
assert torch.jit.script(moved)(x, torch.device("cuda:1")).tolist() == [1, 1]
""",
    "a generator": """
def drawn(g: torch.Generator):
    return torch.rand([2], generator=g)
made = torch.Generator("cuda").manual_seed(3)
assert torch.equal(torch.jit.script(drawn)(made), torch.rand(2, generator=torch.Generator().manual_seed(3)))
""",
}


@pytest.mark.parametrize("text", MORE.values(), ids=MORE)
def test_what_else_torchscript_compiles_of_a_script(run, text):
    run(text)


KNOWN = {
    "a tensor of one's own that asks which function it is": """
class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        for name in ("zeros_like", "ones_like"):
            if func is getattr(torch, name):
                return name
        for name in ("cuda", "cpu", "to", "new_zeros"):
            if func is getattr(Tensor, name):
                return name
        return super().__torch_function__(func, types, args, kwargs or {})
own = x.as_subclass(Own)
asked = torch.zeros_like(own), torch.ones_like(own, device="cuda"), own.cuda(), own.cpu(), own.to("cuda"), own.new_zeros(2)
assert asked == ("zeros_like", "ones_like", "cuda", "cpu", "to", "new_zeros")
assert torch.full_like(own, 2.0, device="cuda").tolist() == [2, 2]
""",
    "a mode that asks which function it is": """
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return "here" if func is torch.zeros else func(*args, **(kwargs or {}))
with Mode():
    assert torch.zeros(2) == "here" and torch.ones(1, device="cuda").item() == 1
with torch.device("meta"):
    assert torch.zeros(2).is_meta and torch.tensor([1]).is_meta and not torch.zeros(2, device="cuda").is_meta
""",
    "PyTorch's tables of functions": """
import torch.overrides
assert torch.zeros in torch.overrides.get_ignored_functions()
assert torch.overrides.resolve_name(torch.zeros_like) == "torch.zeros_like"
""",
    "pickle": """
import copy, pickle
for each in (torch.zeros, torch.zeros_like, torch.fft.fftfreq, torch.Generator):
    assert pickle.loads(pickle.dumps(each)) is copy.deepcopy(each) is each
assert issubclass(type(torch.default_generator), torch.Generator)
""",
    "graphs of torch.fx": """
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx
def traced(x):
    return torch.zeros_like(x) + torch.ones_like(x, device="cuda") + x.new_zeros(2) + x.cuda() + x.to("cuda")
graph = symbolic_trace(traced)
assert graph(x).tolist() == [3, 3] and "torch.zeros_like(x)" in graph.code
assert make_fx(traced)(x)(x).tolist() == [3, 3]
assert torch.jit.trace(traced, x)(x).tolist() == [3, 3]
class Traced(torch.nn.Module):
    def forward(self, x):
        return traced(x)
assert torch.export.export(Traced(), (x,)).module()(x).tolist() == [3, 3]
""",
}


@pytest.mark.parametrize("text", KNOWN.values(), ids=KNOWN)
def test_functions_are_known_where_they_are_looked_up(run, text):
    run(text)


def test_torchscript_compiles_what_it_did_before_once_the_ranks_have_ended(run):
    before = dict(_builtins._get_builtin_table())
    run("")
    assert _builtins._get_builtin_table() == before


@pytest.mark.filterwarnings("ignore:.TorchScript. support for functional optimizers:DeprecationWarning")
def test_optimizers_of_torch_distributed_do_what_they_do_on_gloo(run, tmp_path):
    for name in ("gloo", "ours"):
        (tmp_path / name).mkdir()
    run_on_gloo(OPTIMIZERS, tmp_path / "gloo", N)
    assert run_script(OPTIMIZERS, [str(tmp_path / "ours")], N)[1] == 0
    for rank in range(N):
        theirs, ours = (torch.load(tmp_path / name / f"{rank}.pt") for name in ("gloo", "ours"))
        assert theirs.keys() == ours.keys()
        assert len(ours) == 11
        for name in theirs:
            for a, b in zip(theirs[name], ours[name], strict=True):
                assert torch.allclose(a, b, rtol=1e-6), name
