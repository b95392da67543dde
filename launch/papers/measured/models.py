"""A model from the sizes that a row names, by the first architecture that has such sizes.

That of the catalogue whose models' names begin as the row's does comes first; then the sizes tell:
- experts are Mixtral's;
- a feed-forward block of 4 times the hidden size has two matrices: GPT's where every head has keys of its own, else Nemotron's;
- any other has three, as Llama's.
"""

from dataclasses import MISSING, fields
from typing import Any, NamedTuple

from emu.errors import InputError
from emu.model.model import ARCHITECTURES, MODELS, Architecture, Model
from launch.papers.measured.rows import Run

_LEAST = 4  # letters that two names have in common, to be of one family
_OF_SIZES = ("ffn", "kv_heads")  # that some architectures have from others


class Found(NamedTuple):
    """A model, and what it is one of."""

    model: Model
    architecture: str


def model_of(run: Run, where: str) -> Found:
    """Return the model of a row.

    Raises:
        InputError: sizes that no architecture of the catalogue has; the message names the line.
    """
    sizes = {name: getattr(run, name) for name in ("layers", "hidden", "heads", "ffn", "vocab")}
    sizes |= {"kv_heads": run.kv_heads or run.heads, "max_seq": run.seq}
    sizes |= {"experts": run.experts, "top_k": run.top_k} if run.experts else {}
    for name in dict.fromkeys((*_by_name(run), _by_sizes(run))):
        architecture = ARCHITECTURES.find(name)
        try:
            config = _config(architecture, sizes)
            model = config and architecture.describe(run.model or run.id, config)
            if model:
                model.parameters()  # works out every part, which refuses sizes that do not fit each other
                return Found(model, name)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    raise InputError(f"{where}: ffn must be a size that {_by_sizes(run)} has with hidden={run.hidden}, got {run.ffn}")


def _config(architecture: Architecture, sizes: dict[str, int]) -> Any:
    """Return the configuration of these sizes; None: the architecture has others, or needs more."""
    of = type(next(iter(architecture.configs.values())))
    needed = {f.name for f in fields(of) if f.default is MISSING and f.default_factory is MISSING}
    if not needed <= set(sizes):
        return None
    config = of(**{f.name: sizes[f.name] for f in fields(of) if f.name in sizes})
    own = {"kv_heads": sizes["heads"]} | {name: getattr(config, name) for name in _OF_SIZES if hasattr(config, name)}
    return config if all(own[name] == sizes[name] for name in _OF_SIZES) else None


def _by_name(run: Run) -> list[str]:
    """Architectures of the models whose names begin as this one's, that which has most of it first."""
    found: dict[str, int] = {}
    for name, architecture in ARCHITECTURES:
        alike = [each for each in architecture.configs if bool(MODELS.find(each).experts) == bool(run.experts)]
        found[name] = max((_begin_alike(each, run.model.lower()) for each in alike), default=0)
    return sorted((name for name, length in found.items() if length >= _LEAST), key=lambda name: -found[name])


def _begin_alike(one: str, other: str) -> int:
    """Letters."""
    return next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), min(len(one), len(other)))


def _by_sizes(run: Run) -> str:
    if run.experts:
        return "mixtral"
    if run.ffn != 4 * run.hidden:
        return "llama"
    return "gpt" if run.kv_heads in (0, run.heads) else "nemotron"
