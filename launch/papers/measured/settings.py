"""The software, the machine and the model of each published run, from named settings; no constant belongs to a single row.

Sources: NVIDIA dgxc-benchmarking v25.02.02 (configure.sh and the YAML file of each model) and Megatron-LM for what NeMo turned
on in 2025; Megatron-Bridge, docs/performance-summary-archive.md (25.09); Narayanan et al. (SC21) and Megatron-LM v2.6,
examples/sc21/CONFIG.sh, for 2021; Korthikanti et al. (2022), whose code is Megatron-LM of 2022.

The model follows from the sizes that a row names, by the first architecture that can have them. Architectures with a model of a
similar name are tried first; then that of the sizes: - experts are Mixtral's; - a feed-forward block of 4 times the hidden size
has two matrices: GPT's if every head has keys of its own, else Nemotron's; - any other feed-forward block has three matrices,
as Llama's.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from os.path import commonprefix
from typing import Any, NamedTuple

from emu.collective.chooser_names import AUTO
from emu.errors import InputError, must_be
from emu.model.model import ARCHITECTURES, MODELS, Architecture, Model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import Stack, parse_stack
from emu.registry import unknown
from emu.study.training.estimate import EstimateRequest
from emu.topology.description.values import located
from launch.data.presets import STACKS
from launch.papers.measured.rows import FP8, PRECISIONS, Run

_LEAST = 4  # letters that two names have in common, to be of one family
_OF_SIZES = ("ffn", "kv_heads")  # that some architectures have from others


def model_of(run: Run, where: str) -> tuple[Model, str]:
    """Return the model of a row, and the architecture by whose sizes it was found.

    Raises:
        InputError: sizes that no architecture of the catalogue has; the message names the line.
    """
    sizes = {name: getattr(run, name) for name in ("layers", "hidden", "heads", "ffn", "vocab")}
    sizes |= {"kv_heads": run.kv_heads or run.heads, "max_seq": run.seq}
    sizes |= {"experts": run.experts, "top_k": run.top_k} if run.experts else {}
    for name in dict.fromkeys((*_architectures_of_name(run), _family_of(run))):
        architecture = ARCHITECTURES.find(name)
        try:
            config = _config(architecture, sizes)
            model = config and architecture.describe(run.model or run.id, config)
            if model:
                model.parameters()  # works out every part, which refuses sizes that do not fit each other
                return model, name
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    raise InputError(f"{where}: ffn must be a size that {_family_of(run)} has with hidden={run.hidden}, got {run.ffn}")


def _config(architecture: Architecture, sizes: dict[str, int]) -> Any:
    """Return an architecture's configuration with the given sizes; None if the sizes do not fit it."""
    of = type(next(iter(architecture.configs.values())))
    needed = {f.name for f in fields(of) if f.default is MISSING and f.default_factory is MISSING}
    if not needed <= set(sizes):
        return None
    config = of(**{f.name: sizes[f.name] for f in fields(of) if f.name in sizes})
    own = {"kv_heads": sizes["heads"]} | {name: getattr(config, name) for name in _OF_SIZES if hasattr(config, name)}
    return config if all(own[name] == sizes[name] for name in _OF_SIZES) else None


def _architectures_of_name(run: Run) -> list[str]:
    """Return the architectures whose models have a name that begins like the run's model, best match first.

    At least four letters must be the same. The architecture with the most equal letters comes first. A model with experts and
    one without are never taken for the same family.
    """
    found: dict[str, int] = {}
    for name, architecture in ARCHITECTURES:
        alike = [each for each in architecture.configs if bool(MODELS.find(each).experts) == bool(run.experts)]
        begins = (commonprefix((each, run.model.lower())) for each in alike)  # noqa: RUF071 - letters are meant, no paths
        found[name] = max(map(len, begins), default=0)
    return sorted((name for name, length in found.items() if length >= _LEAST), key=lambda name: -found[name])


def _family_of(run: Run) -> str:
    """Return the name of the architecture that fits the experts, the feed-forward width and the heads of a run's model."""
    if run.experts:
        return "mixtral"
    if run.ffn != 4 * run.hidden:
        return "llama"
    return "gpt" if run.kv_heads in (0, run.heads) else "nemotron"


class Setting(NamedTuple):
    """The settings of the software that certain published sources used, which their rows do not repeat.

    `sources`, `devices` and `models` say to which rows the setting applies.
    """

    stack: str  # as `--stack` takes it, but for the dtypes
    sharding: str
    sp: str  # sequence parallelism: "always" with tp, "never", or "selective": where activations are recomputed selectively
    sources: tuple[str, ...]  # words of a row's source
    devices: tuple[str, ...] = ()  # whose rows run so, where no word of a source says it
    capacity: float = 0.0  # of an expert
    dropout: float = 0.0
    models: tuple[str, ...] = ()  # how the names of the models begin whose recipe it is; (): of any
    fp8: str = ""  # what is added where products are in FP8; "": none ran so


# NCCL's choices, asked ahead of the device. No switch adds: A100's NVSwitches do not, and NVIDIA's recipes of 2025 say
# NCCL_NVLS_ENABLE=0. Rings carry 20 GB/s each way of a link's 25 on A100 and 20.6 on H100: NVIDIA/nccl v2.30.7-1,
# src/graph/topo.h, SM80_NVLINK_BW and SM90_NVLINK_BW.
AMPERE_NETWORK = "library=nccl,alpha=54.73ns,bandwidth=0.8/0.95"
HOPPER_NETWORK = "library=nccl,alpha=54.73ns,bandwidth=0.824/0.95"
_NEMO = f"software=megatron,{HOPPER_NETWORK},tp=chunked,dp=overlapped,gradient=bfloat16"
# Cores that a reduce-scatter of user buffers takes: Transformer Engine's default, initialize_ub; else those that the recipe's
# ub_tp_comm_overlap_cfg gives to proj_fprop, fc2_fprop, qkv_wgrad and fc1_wgrad, the mean by the FLOPs of these products.
_DEFAULT, _70B, _405B = "sms=16", "sms=11", "sms=8"
_FP8 = "fp8=delayed,fp8_gather=yes"  # fp8_hybrid and fp8_params of the recipes


def _nemo(stack: str, fp8: str = _FP8, sources: tuple[str, ...] = ("dgxc",), **more: Any) -> Setting:
    """Return a setting of NVIDIA's recipes of 2025.

    Args:
        stack: The words that the recipe adds to the stack of all these recipes.
        fp8: The words that are added if products are in FP8.
        sources: Words of a row's source.
        **more: Other fields of the setting.
    """
    return Setting(f"{_NEMO},{stack}", "zero1", "always", sources, fp8=fp8, **more)


_SC21 = f"software=megatron,{AMPERE_NETWORK},tp=exposed,dp=exposed,accumulation=unfused,attention=unfused,gradient=bfloat16"
_2022 = f"software=megatron,{AMPERE_NETWORK},tp=backward,dp=exposed,accumulation=fused,attention=unfused"
SETTINGS: Mapping[str, Setting] = {
    # Scores are written, gradients, of the weights' two bytes, added by a kernel of their own, all communication waited
    # for: SC21 ran with --fp16 (examples/sc21/CONFIG.sh), and without --bf16 Megatron-LM adds up and reduces gradients in
    # the type of the weights (megatron/arguments.py, megatron/model/distributed.py; v2.6).
    "megatron-2021": Setting(_SC21, "ddp", "never", ("SC21",), dropout=0.1),
    # Gradients are added by the product that makes them; the backward's all_reduce runs beside it.
    "megatron-2022": Setting(_2022, "ddp", "selective", ("Korthikanti",), ("a100-80g",), dropout=0.1),
    # The distributed optimizer, gradients in bfloat16, user buffers, attention by cuDNN; one setting for each recipe.
    "nemo-2025": _nemo(_DEFAULT, devices=("h100", "h800", "h200", "b200", "gb200"), capacity=1.0),
    "nemo-2025-70b": _nemo(f"{_70B},deferred=22", models=("llama3.1-70b",)),
    "nemo-2025-405b": _nemo(f"{_405B},deferred=50", models=("llama3.1-405b",)),
    "nemo-2025-nemotron": _nemo(f"{_DEFAULT},unfused=activation", models=("nemotron",)),
    # Transformer Engine's current scaling, one scale for a tensor; tokens beyond an expert's capacity are dropped.
    "bridge-2025": _nemo(_DEFAULT, "fp8=tensor,fp8_gather=yes", ("Megatron-Bridge",), capacity=1.0),
    "nemo-2025-grok": _nemo(f"{_DEFAULT},attention=fa2,unfused=loss/router/permutation", models=("grok",), capacity=1.0),
}


_NIC = "50GB/s"  # 400 Gb/s
MACHINES: Mapping[str, tuple[str, str]] = {  # of a GPU, in a server of 8, NVLink one way and the NIC
    "a100-80g": ("300GB/s", "25GB/s"),  # Selene: DGX A100, 8 x 200 Gb/s
    "h100": ("450GB/s", _NIC),  # DGX H100, 8 x 400 Gb/s
    "h800": ("200GB/s", _NIC),
    "h200": ("450GB/s", _NIC),
    "b200": ("900GB/s", _NIC),
    "gb200": ("900GB/s", _NIC),
}
_GPUS = 8  # of a server


def setting_of(run: Run, where: str) -> str:
    """Return the name of the software settings of a run, by its row, its source or its device.

    Raises:
        InputError: the row names an unknown software, or no software is known for its device.
    """
    if run.software:
        if run.software not in SETTINGS:
            with located(where):
                raise unknown("software", run.software, SETTINGS)
        return run.software
    of_source = [
        name
        for name, setting in SETTINGS.items()
        if any(word.lower() in run.source.lower() for word in setting.sources)
        and (not setting.models or run.model.lower().startswith(setting.models))
    ]
    of_source.sort(key=lambda name: not SETTINGS[name].models)
    of_device = [name for name, setting in SETTINGS.items() if run.device in setting.devices]
    if not of_source + of_device:
        raise must_be(where, "software", f"one of {', '.join(SETTINGS)} for a {run.device}", run.software)
    return (of_source + of_device)[0]


def topology_of(run: Run, where: str) -> str:
    """Return the text of a run's topology for `--topology`.

    Raises:
        InputError: The GPUs do not fill their last server, or no server with this device is known.
    """
    if run.device not in MACHINES:
        raise must_be(where, "device", f"one whose servers are known: {', '.join(MACHINES)}", run.device)
    gpus = min(run.gpus, _GPUS)
    if run.gpus % gpus:
        raise must_be(where, "gpus", f"a multiple of the {_GPUS} of a server", run.gpus)
    nvlink, nic = MACHINES[run.device]
    return f"servers:nodes={run.gpus // gpus},gpus={gpus},nvlink={nvlink},nic={nic},adds=no"


def stack_of(run: Run, name: str) -> Stack:
    """Return the stack that a setting names, in the precision of a run."""
    dtype, setting = PRECISIONS[run.precision], SETTINGS[name]
    narrow = f",{setting.fp8}" if run.precision == FP8 else ""
    return parse_stack(f"{setting.stack}{narrow},weight={dtype},activation={dtype}", STACKS)


def plan_of(run: Run, name: str, where: str) -> Plan:
    """Return the plan of a run with the software of a setting.

    Args:
        run: The run.
        name: The name of the setting.
        where: The line of the run in its file, for messages.

    Raises:
        InputError: The sizes of the plan do not divide one another; the message names the line.
    """
    setting = SETTINGS[name]
    same = ("tp", "cp", "ep", "pp", "vp", "microbatch", "global_batch", "seq", "recompute")
    try:
        return Plan(
            **{name: getattr(run, name) for name in same},
            dp=run.gpus // (run.tp * run.cp * run.pp),
            sp=run.tp > 1 and setting.sp in ("always", run.recompute),
            sharding=setting.sharding,
            cp_comm="p2p",
            capacity=setting.capacity if run.experts else 0.0,
            dropout=setting.dropout,
            layers=_stages(run),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _stages(run: Run) -> tuple[int, ...]:
    """Return the number of layers of each stage if the stages cannot have equally many, else ().

    The embedding and the head then count as one layer each, so that the first and the last stage have one layer fewer.
    """
    stages = run.pp * run.vp
    low, more = divmod(run.layers + 2, stages)
    if run.layers % stages == 0 or more or low < 2:
        return ()
    return (low - 1, *(low,) * (stages - 2), low - 1)


def request_of(run: Run, model: Model, where: str) -> EstimateRequest:
    """Return the request to estimate the step of a run.

    Raises:
        InputError: See `setting_of` and `plan_of`; or the software has no FP8.
    """
    name = setting_of(run, where)
    if run.precision == FP8 and not SETTINGS[name].fp8:
        known = ", ".join(name for name, setting in SETTINGS.items() if setting.fp8)
        raise must_be(where, "precision", f"bf16 or fp16 with {name}", FP8, f"software with FP8: {known}")
    stack = stack_of(run, name)
    return EstimateRequest(model, plan_of(run, name, where), stack, (stack.library or AUTO,))
