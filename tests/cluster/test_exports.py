"""Every name that `torch.cuda` and its like export is answered, or refused by name, as the tables of docs/run.md say."""

import importlib
import pkgutil
import re
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from emu.cluster.npu.npu import Npu
from emu.cluster.npu.npu_emulation import emulate_npus
from emu.errors import RunError

PAGE = Path(__file__).parents[2] / "docs" / "run.md"
H100 = Npu("h100", 80 * 10**9, (9, 0), 132)
OF_CUDA = [
    "amp",
    "comm",
    "gds",
    "graphs",
    "green_contexts",
    "jiterator",
    "memory",
    "nccl",
    "nvtx",
    "profiler",
    "random",
    "sparse",
    "streams",
    "tunable",
]
MODULES = (
    "torch.cuda",
    *(f"torch.cuda.{name}" for name in OF_CUDA),
    "torch.backends.cuda",
    "torch.backends.cudnn",
    "torch.backends.cusparselt",
    "torch.accelerator",
    "torch.accelerator.graphs",
    "torch.accelerator.memory",
)
UNDERSCORED = {
    "torch.cuda": ["_sleep", "_compile_kernel"],
    "torch.cuda.jiterator": ["_create_jit_fn", "_create_multi_output_jit_fn"],
    "torch.cuda.memory": ["_record_memory_history", "_snapshot", "_dump_snapshot", "_set_allocator_settings"],
}
CUDNN = ("enabled", "benchmark", "benchmark_limit", "deterministic", "allow_tf32", "fp32_precision", "conv")
TYPING = {"annotations", "TYPE_CHECKING"}
# How a function is called that takes an argument; all others are called without one.
CALLS = {
    "torch.cuda.can_device_access_peer": "(0, 1)",
    "torch.cuda.device": "(1)",
    "torch.cuda.device_of": "(torch.ones(1))",
    "torch.cuda.set_device": "(1)",
    "torch.cuda.set_stream": "(torch.cuda.Stream())",
    "torch.cuda.stream": "(torch.cuda.Stream())",
    "torch.cuda.StreamContext": "(torch.cuda.Stream())",
    "torch.cuda.manual_seed": "(1)",
    "torch.cuda.manual_seed_all": "(1)",
    "torch.cuda.set_rng_state": "(torch.cuda.get_rng_state())",
    "torch.cuda.set_rng_state_all": "(torch.cuda.get_rng_state_all())",
    "torch.cuda.set_per_process_memory_fraction": "(0.5)",
    "torch.cuda.set_sync_debug_mode": "(0)",
    "torch.cuda.AcceleratorError": None,
    "torch.cuda.CudaError": None,
    "torch.cuda.DeferredCudaCallError": None,
    "torch.cuda.cudaStatus": None,
    "torch.cuda.classproperty": "(len)",
    "torch.cuda.amp.custom_fwd": "(lambda ctx: None)",
    "torch.cuda.amp.custom_bwd": "(lambda ctx: None)",
    "torch.cuda.nccl.is_available": "([torch.ones(1)])",
    "torch.cuda.nvtx.mark": "('here')",
    "torch.cuda.nvtx.range": "('here')",
    "torch.cuda.nvtx.range_push": "('here')",
    "torch.cuda.nvtx.range_start": "('here')",
    "torch.cuda.nvtx.range_end": "(0)",
    "torch.backends.cuda.SDPAParams": "(*[torch.ones(1, 1, 1, 1)] * 3, None, 0.0, False, False)",
    "torch.backends.cuda.SDPBackend": None,
    "torch.backends.cuda.cuFFTPlanCache": None,
    "torch.backends.cuda.cuFFTPlanCacheAttrContextProp": None,
    "torch.backends.cuda.preferred_linalg_library": "('magma')",
    **{f"torch.backends.cuda.enable_{name}_sdp": "(True)" for name in ("cudnn", "flash", "math", "mem_efficient")},
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp": "(False)",
    **{
        f"torch.backends.cuda.can_use_{name}_attention": "(torch.backends.cuda.SDPAParams(*[torch.ones(1, 1, 1, 1)] * 3, "
        "None, 0.0, False, False))"
        for name in ("cudnn", "efficient", "flash")
    },
    "torch.backends.cudnn.is_acceptable": "(torch.ones(1))",
    "torch.accelerator.set_device_index": "(1)",
    "torch.accelerator.set_device_idx": "(1)",
    "torch.accelerator.device_index": "(1)",
    "torch.accelerator.set_stream": "(torch.cuda.Stream())",
}


def exports(module):
    """The names of a module that are its own or PyTorch's."""
    inside = getattr(module, "m", module)  # of cudnn, which is an object in place of a module
    found = set()
    for name in dir(inside):
        value = getattr(inside, name)
        foreign = callable(value) and not str(getattr(value, "__module__", "")).startswith("torch")
        if not (name.startswith("_") or foreign or isinstance(value, ModuleType) or name in TYPING):
            found.add(name)
    return found - {"Tensor", "Storage", "ContextProp", "CudnnModule", "PropModule"}


def tables():
    """(module, pattern) of what is answered, and of what is refused."""
    part = PAGE.read_text().partition("### Name by name")[2].partition("\n## ")[0]
    answered, refused = [], []
    for row in part.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if row.startswith("| `"):
            names = [(cells[0].strip("`"), name) for name in re.findall(r"`([\w*]+)`", cells[1])]
            (refused if len(cells) == 2 else answered).extend(names)
    return answered, refused


ANSWERED, REFUSED = tables()


def told(module, name, rows):
    """Return whether rows name it, as a name of the module or of the one above that has it from there."""
    above = module.rpartition(".")[0]
    of = [module]
    if above in ("torch.cuda", "torch.accelerator") and hasattr(importlib.import_module(above), name):
        same = getattr(importlib.import_module(above), name) is getattr(importlib.import_module(module), name)
        of += [above] if same else []
    return any(where in of and fnmatchcase(name, pattern) for where, pattern in rows)


UNDERSCORED_NAMES = [(module, name) for module, names in UNDERSCORED.items() for name in names]
EXPORTS = [(module, name) for module in MODULES for name in sorted(exports(importlib.import_module(module)))]


@pytest.fixture(scope="module")
def values():
    """Every name's value while ranks run, before any is called."""
    with emulate_npus(H100, 2):
        yield {(m, n): getattr(importlib.import_module(m), n) for m, n in [*EXPORTS, *UNDERSCORED_NAMES]}


def test_every_module_of_torch_cuda_is_walked():
    assert [each.name for each in pkgutil.iter_modules(torch.cuda.__path__) if not each.name.startswith("_")] == OF_CUDA


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_in_one_table_and_every_row_has_a_name(module):
    names = [name for of, name in EXPORTS if of == module]
    names += UNDERSCORED.get(module, [])
    untold = [n for n in names if told(module, n, ANSWERED) + told(module, n, REFUSED) != 1]
    assert not untold
    rows = [pattern for where, pattern in ANSWERED + REFUSED if where == module]
    assert not [pattern for pattern in rows if not any(fnmatchcase(name, pattern) for name in (*names, "rnn", *CUDNN))]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("module", "name"), [e for e in EXPORTS if told(*e, ANSWERED)])
def test_what_is_answered_raises_nothing(values, module, name):
    value = values[module, name]
    arguments = CALLS.get(f"{module}.{name}", CALLS.get(f"{module.rpartition('.')[0]}.{name}", "()"))
    if callable(value) and arguments is not None and not name.endswith(("Tensor", "Storage")):
        eval(f"value{arguments}", {"value": value, "torch": torch})


@pytest.mark.parametrize(("module", "name"), [*(e for e in EXPORTS if told(*e, REFUSED)), *UNDERSCORED_NAMES])
def test_what_is_refused_is_refused_by_its_name_in_one_line(values, module, name):
    value = values[module, name]
    with pytest.raises(RunError) as error:
        value() if callable(value) else value.size
    what = rf"(cuda: {module}|cuda: {module.rpartition('.')[0]})(\.{name})? has no meaning on an emulated NPU"
    assert re.match(what, str(error.value))


@pytest.mark.parametrize("name", CUDNN)
def test_settings_of_cudnn_are_there(name):
    with emulate_npus(H100, 2):
        getattr(torch.backends.cudnn, name)


def test_what_is_told_of_a_device():
    with emulate_npus(H100, 2):
        of = torch.cuda.get_device_properties(1)
        assert (of.name, of.major, of.minor, of.multi_processor_count, of.warp_size) == ("h100", 9, 0, 132, 32)
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_arch_list() == ["sm_90"]
        assert torch.cuda.nccl.version() >= (2, 10)
        assert torch.version.cuda
        assert len(torch.cuda.default_generators) == 2
        assert torch.cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"] == 0
        assert torch.cuda.cudart().cudaProfilerStart() == 0
        for refuse in (lambda: of.L2_cache_size, lambda: torch.cuda.cudart().cudaStreamCreate):
            with pytest.raises(RunError, match="has no meaning"):
                refuse()
        assert not hasattr(of, "no such property")


def test_autocast_of_cuda_is_that_of_the_cpu_wherever_it_is_asked():
    with emulate_npus(H100, 2):
        forward = torch.amp.custom_fwd(lambda _, x: x, device_type="cuda", cast_inputs=torch.float16)
        assert not torch.is_autocast_enabled()
        assert torch.get_autocast_gpu_dtype() == torch.float16
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled()
            assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.bfloat16

            assert forward(SimpleNamespace(), torch.ones(2)).dtype == torch.float16


def test_data_parallel_has_one_device():
    model = torch.nn.Linear(2, 2)
    with emulate_npus(H100, 2):
        assert torch.nn.DataParallel(model, device_ids=[1])(torch.ones(2)).shape == (2,)
        with pytest.raises(RunError, match=r"^cuda: torch.nn.DataParallel has a process compute on 2 devices"):
            torch.nn.DataParallel(model)


def test_devices_may_be_named_by_a_keyword():
    with emulate_npus(H100, 2):
        torch.cuda.synchronize(device=0)
        assert torch.cuda.get_device_capability(device=1) == torch.cuda.get_device_capability(1)
        assert torch.equal(torch.cuda.get_rng_state(device="cuda:0"), torch.cuda.get_rng_state())
        assert torch.cuda.memory_allocated(device=0) == torch.cuda.max_memory_allocated(device=0)
        assert torch.cuda.current_stream(device=0) == torch.cuda.default_stream(device=0)
