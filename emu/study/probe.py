"""Probes: kernels that are run and timed on this machine, for the calibration of a device and the check of its model.

The same code runs on a CPU and on CUDA; only sizes differ, because a GPU needs larger kernels to be full.

Small models of one layer run every kernel that a step of a larger one runs, and each of these kernels is timed by itself. It is
called a few times on the operands that it has in the step, after other memory was written, so that no cache holds them. It
finds them like this in a step, between all others. The median of these times counts, and of steps too: on a machine with other
users, a short call has undisturbed moments, a step has none.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from emu.backend.rank.operator_counter import Operator, OperatorCounter
from emu.backend.rank.record import Recorder
from emu.errors import must_be
from emu.model.parallel.data_parallel import clip_gradients
from emu.model.parallel.mesh import parameter_parts
from emu.model.parts.attention_block import Attention, Heads
from emu.model.parts.decoder import Decoder, DecoderLayer
from emu.model.parts.feed_forward import FeedForward
from emu.study.training.learn.program import one_thread
from emu.trace.device.measured import MeasuredKernel
from emu.trace.kernel_shape import Kernel
from emu.trace.timed_dtype import TF32
from emu.trace.trace import Events

_LOOKS = 7
_STEPS = 5
_CLIP = 1.0


class LayerSizes(NamedTuple):
    """The sizes of a model of one layer, and the tokens of its step, for a probe."""

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
    """Return a function that does a training step of one small model: forward, backward, clipping, AdamW."""
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
    """Return the seconds of a call: on a GPU between two events of its stream, on a CPU the time of this thread."""
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
        with OperatorCounter(seen.append):
            out = call(*args, **named)
        if seen:
            self.found.append((seen[0], median(self._seconds_of_calls(lambda: call(*args, **named)))))
        return out

    def _seconds_of_calls(self, call: Callable[[], object]) -> list[float]:
        """Return the seconds of several calls of an operator, each with new memory for its result, as in a training step."""
        kept: list[object] = []
        found = []
        for _ in range(_LOOKS):
            self.written.add_(1)
            found.append(_took_s(self.device, lambda: kept.append(call())))
        return found


class LayerStep(NamedTuple):
    """A step of a model of one layer: every kernel in order with the seconds of one call, and the seconds of the whole step."""

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
    """Return the row of a measured kernel: its shape, or else its name and the bytes that it moves."""
    kernel, batch, m, n, k = of.shape
    if kernel == Kernel.OTHER or not (of.flops or kernel == Kernel.SCATTER_ADD):
        return MeasuredKernel(Kernel.OTHER, of.dtype, 0.0, bytes=of.bytes, name=of.name)
    return MeasuredKernel(kernel, of.dtype, 0.0, batch, m, n, k, 0 if kernel == Kernel.PRODUCT else of.bytes)


_LEAST_S = 0.02  # that runs of a kernel between two looks at the clock take together
_CHAIN = 64  # small operators one after another


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of the kernels, like those of a training step that the device can hold."""

    dtype: str  # that a step is computed in
    rows: tuple[int, ...]  # of products: tokens
    columns: tuple[int, ...]
    heads: tuple[int, int, int, int]  # of attention: sequences, heads, tokens, elements a head
    copied: int  # elements of a copy, so many that no cache holds them
    element_wise: tuple[int, ...]
    peaks: tuple[str, ...]  # that products are measured in, one each
    layers: tuple[LayerSizes, ...]  # of models of one layer, whose kernels are timed one by one


_PEAKS = ("float32", "bfloat16")
_OF_CPU = tuple(
    LayerSizes(tokens // 128, 128, hidden, hidden // 32, hidden // 64, 3 * hidden, 256)
    for tokens, hidden in product((256, 512, 1024), (128, 256, 512))
)
_OF_CUDA = tuple(
    LayerSizes(tokens // 4096, 4096, hidden, hidden // 128, 8, 7 * hidden // 2, 32_000)
    for tokens, hidden in product((4096, 8192, 16384), (2048, 4096))
)
SIZES = {
    "cpu": Sizes("float32", (256, 512, 1024), (256, 704), (4, 8, 128, 32), 2**24, (2**18, 2**20, 2**22), _PEAKS, _OF_CPU),
    "cuda": Sizes(
        "bfloat16", (2048, 4096, 8192), (4096, 6144), (2, 32, 4096, 128), 2**28, (2**25, 2**27), (*_PEAKS, TF32), _OF_CUDA
    ),
}


class Probe(NamedTuple):
    """A measured kernel, or a few kernels that are measured together, as events, with their least time in seconds."""

    what: str
    events: Events
    time_s: float


def _clock_s(device: str) -> float:
    """Return the present time in seconds; on a CPU, the computing time of this thread."""
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.thread_time()


def _random(device: str, *shape: int, dtype: str, learns: bool = False) -> Tensor:
    return torch.rand(*shape, device=device, dtype=getattr(torch, dtype)).sub_(0.5).requires_grad_(learns)


def here(device: str) -> str:
    """Return the device name, `cpu` or `cuda`, after the check that this machine has one.

    Raises:
        InputError: It is none of the two, or this machine has no CUDA.
    """
    if device not in SIZES:
        raise must_be("calibrate", "--device", " or ".join(SIZES), device)
    if device == "cuda" and not torch.cuda.is_available():
        raise must_be("calibrate", "--device", "one that is here", device, "PyTorch finds no CUDA device: take cpu")
    return device


def probes(device: str) -> Iterator[Probe]:
    """Run and time the kernels for the calibration of a device, `cpu` or `cuda`, and yield each result."""
    sizes = SIZES[device]
    with one_thread():
        for what, program in _programs(device, sizes):
            yield Probe(what, _events(program), _least_s(device, program))


def layers(device: str) -> Iterator[LayerStep]:
    """Run a step of each one-layer model, time each of its kernels separately, and yield the results."""
    with one_thread():
        for sizes in SIZES[device].layers:
            yield run(sizes, device, SIZES[device].dtype)


def _programs(device: str, sizes: Sizes) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the kinds of probes with the program of each."""
    for m, n, k in product(sizes.rows, sizes.columns, sizes.columns):
        yield "product", partial(torch.matmul, *(_random(device, *shape, dtype=sizes.dtype) for shape in ((m, k), (k, n))))
    m, n = sizes.rows[-1], sizes.columns[-1]
    for dtype in sizes.peaks:
        of = "float32" if dtype == TF32 else dtype
        run = partial(torch.matmul, _random(device, m, n, dtype=of), _random(device, n, n, dtype=of))
        yield f"peak {dtype}", _in_tf32(run) if dtype == TF32 else run
    yield "attention", _attends(device, sizes)
    copied = _random(device, sizes.copied, dtype="float32")
    yield "copy", partial(torch.empty_like(copied).copy_, copied)
    for n in sizes.element_wise:
        yield "element-wise", _element_wise(_random(device, n, dtype=sizes.dtype), _random(device, n, dtype=sizes.dtype))
    yield "scatter-add", _adds_rows(_random(device, sizes.rows[-1], sizes.columns[-1], dtype=sizes.dtype))
    yield "launch", _launches(_random(device, 1, dtype="float32", learns=True))


def _in_tf32(run: Callable[[], object]) -> Callable[[], object]:
    """Return a program that runs with products in TF32."""

    def call() -> object:
        before = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = TF32
        try:
            return run()
        finally:
            torch.backends.cuda.matmul.fp32_precision = before

    return call


def _attends(device: str, sizes: Sizes) -> Callable[[], object]:
    """Return a program that runs attention forward and backward."""
    q, k, v = (_random(device, *sizes.heads, dtype=sizes.dtype, learns=True) for _ in range(3))
    gradient = _random(device, *sizes.heads, dtype=sizes.dtype)

    def run() -> object:
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return torch.autograd.grad(out, (q, k, v), gradient)

    return run


def _element_wise(a: Tensor, b: Tensor) -> Callable[[], object]:
    return lambda: (a + b, a * b, functional.silu(a))


def _adds_rows(rows: Tensor) -> Callable[[], object]:
    """Return a function that adds every two rows to one, like tokens that sum the outputs of their experts."""
    to = torch.zeros_like(rows[::2])
    index = torch.arange(len(rows), device=rows.device) % len(to)
    return lambda: to.index_add_(0, index, rows)


def _launches(a: Tensor) -> Callable[[], object]:
    """Return a program of small operators one after another, forward and backward."""

    def run() -> object:
        x = a
        for _ in range(_CHAIN):
            x = x * 1.0
        return torch.autograd.grad(x, a)

    return run


def _events(run: Callable[[], object]) -> Events:
    """Run a program, and return its kernels as events."""
    recorder = Recorder()
    with recorder.count:
        run()
    return recorder.recorded_events().columns()


def _least_s(device: str, run: Callable[[], object]) -> float:
    """Return the shortest time of a program over several runs, in seconds."""
    times, most = 1, 2**20
    while times < most and _loop_s(device, run, times) < _LEAST_S:
        times *= 2
    return min(_loop_s(device, run, times) for _ in range(_LOOKS)) / times


def _loop_s(device: str, run: Callable[[], object], times: int) -> float:
    """Return the seconds of a program that runs a number of times."""
    began = _clock_s(device)
    for _ in range(times):
        run()
    return _clock_s(device) - began
