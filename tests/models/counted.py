"""One forward and one backward pass of a model, counted: of a small one on real numbers, of a large one on shapes alone."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from emu.backend.rank.operator_counter import Operator, OperatorCounter
from emu.model.model import ARCHITECTURES, Model
from emu.model.operator import Amount, ModelOperator, Tokens
from emu.model.parts.token_routing import set_balance

SEQ, BATCH = 16, 2
TOKENS = Tokens(SEQ, sequences=BATCH)
SMALL = 3_000_000  # parameters that are worth running
ARCHITECTURE = {name: one for _, one in ARCHITECTURES for name in one.configs}


@dataclass(frozen=True, slots=True)
class Counted:
    """The operators that ran, with the model whose list says what should."""

    model: Model
    module: nn.Module
    real: bool  # float32 on real numbers
    forward: list[Operator]
    backward: list[Operator]
    backward_input: list[Operator]  # where no parameter wants a gradient
    saved_bytes: int

    def listed(self, of: Callable[[ModelOperator], Amount], which: Callable[[ModelOperator], bool] = lambda _: True) -> Amount:
        """The sum over the list."""
        return sum((of(o).times(n) for n, o in self.model.operators(TOKENS) if which(o)), Amount())


def few_layers(name: str) -> Model:
    """The model of that name with one layer of each kind, a tiny one with two or more, and all other sizes its own."""
    found = ARCHITECTURE[name]
    config = found.configs[name]
    kinds = found.describe(name, config).kinds
    least = 1 + max(kinds.index(kind) for kind in set(kinds))
    return found.describe(name, replace(config, layers=min(len(kinds), max(least, 2 if name.endswith("-tiny") else 1))))


def count(name: str) -> Counted:
    """Count the model of that name, of few layers."""
    model = few_layers(name)
    real = model.parameters() < SMALL
    # A grouped product has a shape function for bfloat16 only.
    dtype = torch.float32 if real or not model.experts else torch.bfloat16
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with nullcontext() if real else FakeTensorMode(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return _run(model, real)
    finally:
        torch.set_default_dtype(before)


def _run(model: Model, real: bool) -> Counted:
    module = model.build(SEQ)
    set_balance(module, 1.0)
    tokens = torch.randint(model.vocab, (BATCH, SEQ + 1))
    forward, backward, saved = _passes(module, tokens)
    module.requires_grad_(False)
    hook = module.embedding.register_forward_hook(lambda _module, _given, out: out.detach().requires_grad_())
    _, inputs, _ = _passes(module, tokens)
    hook.remove()
    return Counted(model, module, real, forward, backward, inputs, saved)


def _passes(module: nn.Module, tokens: torch.Tensor) -> tuple[list[Operator], list[Operator], int]:
    own = {t.untyped_storage()._cdata for t in [*module.parameters(), *module.buffers()]}
    saved: dict[int, torch.UntypedStorage] = {}  # kept, so that no address is given out again

    def pack(t: torch.Tensor) -> torch.Tensor:
        storage = t.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage
        return t

    seen: list[Operator] = []
    with OperatorCounter(seen.append):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            given, wanted = tokens[:, :-1], tokens[:, 1:].flatten()
            forward = len(seen)
            loss = functional.cross_entropy(module(given).flatten(0, 1), wanted)
        after = len(seen)
        loss.backward()
    return seen[forward:after], seen[after:], sum(s.nbytes() for s in saved.values())
