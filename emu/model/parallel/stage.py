"""The part of a model that one stage of a pipeline has, as a module of its own."""

from collections.abc import Mapping

from torch import Tensor, nn

from emu.model.model import Model
from emu.model.parallel.tensor_parallel import module_names
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import stage_layers

_FIRST, _LAST = ("embedding",), ("norm", "output")  # modules outside `layers`, at the first and at the last stage


class StageModule(nn.Module):
    """Some layers of a model, with its embedding if they are the first and its head if they are the last.

    Every module and parameter has the name that it has in the whole model.
    """

    def __init__(self, whole: nn.Module, layers: range, n_layers: int) -> None:
        super().__init__()
        for name in _FIRST if layers.start == 0 else ():
            self.add_module(name, whole.get_submodule(name))
        every = list(whole.get_submodule("layers").children())
        self.layers = nn.ModuleDict({str(number): every[number] for number in layers})
        for name in _LAST if layers.stop == n_layers else ():
            self.add_module(name, whole.get_submodule(name))

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens [B, T], or the stage before's result [B, T, hidden], to the next stage's input or logits [B, T, vocab]."""
        for part in self.children():
            for module in part.values() if isinstance(part, nn.ModuleDict) else (part,):
                x = module(x)
        return x


def stage_modules(whole: nn.Module, model: Model, plan: Plan, rank: int) -> dict[int, StageModule]:
    """Return the stages of a rank, by number, in the order of the model."""
    sizes = stage_layers(plan, model)
    first = [sum(sizes[:number]) for number in range(len(sizes))]
    return {
        number: StageModule(whole, range(first[number], first[number] + sizes[number]), model.layers)
        for number in plan.stages_of(rank)
    }


def stage_shards(module: nn.Module, shards: Mapping[str, str]) -> dict[str, str]:
    """Return the entries of a model's shards whose modules a stage has."""
    return {path: style for path, style in shards.items() if module_names(module, path)}
