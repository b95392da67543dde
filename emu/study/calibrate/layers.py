"""Small models of one layer, whose steps run every kernel that a step of a larger one runs, and each kernel timed by itself.

A kernel is called a few times on the operands that it has in the step, after other memory was written, so that no cache holds
them. It finds them like this in a step, between all others. The median of these times counts, and of steps too: on a machine
with other users, a short call has undisturbed moments, a step has none.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from emu.backend.rank.count import Count, Operator
from emu.model.parallel.data_parallel import clip_gradients
from emu.model.parallel.mesh import parameter_parts
from emu.model.parts.attention_block import Attention, Heads
from emu.model.parts.decoder import Decoder, DecoderLayer
from emu.model.parts.feed_forward import FeedForward
from emu.trace.device.measured import MeasuredKernel
from emu.trace.trace import Kernel

_LOOKS = 7
_STEPS = 5
_CLIP = 1.0


class LayerSizes(NamedTuple):
    """Sizes of one model, and of the tokens of its step."""

    sequences: int
    tokens: int  # of a sequence
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int


# Elements of float32 that are written between two calls: twice the cache of one core, or as many as a GPU holds.
_FLUSHED = {"cpu": 2**20, "cuda": 2**26}


def step_of(of: LayerSizes, device: str, dtype: str) -> Callable[[], None]:
    """Return a training step of one model, as the ranks of a plan take it: forward, backward, clipping, AdamW."""
    torch.manual_seed(0)
    module = _module(of).to(device, getattr(torch, dtype))
    parameters = dict(module.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), fused=True)
    tokens, targets = torch.randint(of.vocab, (2, of.sequences, of.tokens), device=device)
    held = parameter_parts(parameters.items())

    def step() -> None:
        logits = module(tokens)
        functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()  # type: ignore[no-untyped-call]
        clip_gradients(parameters, held, None, _CLIP)
        optimizer.step()
        optimizer.zero_grad()

    return step


def _module(of: LayerSizes) -> Decoder:
    """Return a model of one layer with these sizes."""
    heads = Heads(of.hidden, of.heads, of.kv_heads, of.hidden // of.heads, turned=of.hidden // of.heads)
    first, second, last = (nn.RMSNorm(of.hidden, 1e-5) for _ in range(3))
    layer = DecoderLayer(Attention(heads, of.tokens), FeedForward(of.hidden, of.ffn), first, second)
    return Decoder(nn.Embedding(of.vocab, of.hidden), [layer], last, nn.Linear(of.hidden, of.vocab, bias=False))


def _took_s(device: str, call: Callable[[], object]) -> float:
    """Return the seconds of a call: on a GPU between two events of its queue, on a CPU those that this thread computed."""
    if device != "cuda":  # so that other programs do not count
        began = time.thread_time()
        call()
        return time.thread_time() - began
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3


class _OperatorTimer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that times each operator that computes."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.written = device, torch.zeros(_FLUSHED[device], device=device)
        self.found: list[tuple[Operator, float]] = []

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        named = named or {}
        seen: list[Operator] = []
        with Count(seen.append):
            out = call(*args, **named)
        if seen:
            self.found.append((seen[0], median(self._looks(lambda: call(*args, **named)))))
        return out

    def _looks(self, call: Callable[[], object]) -> list[float]:
        """Return the seconds of some calls, each of which writes to memory of its own, as no step writes to the same twice."""
        kept: list[object] = []
        found = []
        for _ in range(_LOOKS):
            self.written.add_(1)
            found.append(_took_s(self.device, lambda: kept.append(call())))
        return found


class LayerStep(NamedTuple):
    """A step of such a model: every kernel in order with the seconds of one call, and the seconds of the whole step."""

    kernels: list[tuple[Operator, float]]
    step_s: float

    @property
    def besides_s(self) -> float:
        """The host's seconds for each kernel, beside the kernel itself: in modules, autograd, views and launches."""
        return (self.step_s - sum(took for _, took in self.kernels)) / len(self.kernels)


def run(sizes: LayerSizes, device: str, dtype: str) -> LayerStep:
    """Return the times of a step of a model: as a whole, and kernel by kernel."""
    step, timer = step_of(sizes, device, dtype), _OperatorTimer(device)
    for _ in range(2):  # first moments of the optimizer, and what a process does but once
        step()
    before = [_took_s(device, step) for _ in range(_STEPS)]
    with timer as timed:
        step()
    return LayerStep(timed.found, median([*before, *(_took_s(device, step) for _ in range(_STEPS))]))


def rows_of(ran: Iterable[LayerStep], besides_s: float) -> tuple[MeasuredKernel, ...]:
    """Return a row for each shape, with the mean of equal ones and the host's seconds added.

    An operator without a name stands for all operators of its bytes, so that operators of other names take its time.
    """
    alike: defaultdict[MeasuredKernel, list[float]] = defaultdict(list)
    for operator, took in (kernel for each in ran for kernel in each.kernels):
        row = row_of(operator)
        for each in {row, row._replace(name="")}:
            alike[each].append(took + besides_s)
    return tuple(row._replace(seconds=fmean(took)) for row, took in sorted(alike.items()))


def row_of(of: Operator) -> MeasuredKernel:
    """Return the facts by which a kernel is told from others: its shape, or its name and the bytes that it moves."""
    kernel, batch, m, n, k = of.shape
    if kernel == Kernel.OTHER or not (of.flops or kernel == Kernel.SCATTER_ADD):
        return MeasuredKernel(Kernel.OTHER, of.dtype, 0.0, bytes=of.bytes, name=of.name)
    return MeasuredKernel(kernel, of.dtype, 0.0, batch, m, n, k, 0 if kernel == Kernel.PRODUCT else of.bytes)
