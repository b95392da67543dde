"""Each row of the tables of element-wise passes, against what runs."""

import pytest
import torch
from torch import nn
from torch._inductor import scheduler
from torch._inductor.scheduler import ExternKernelSchedulerNode, NopKernelSchedulerNode
from torch.nn import functional

from emu.backend.rank.operator_counter import OperatorCounter
from emu.model.generate.part import Part
from emu.model.generate.states import adamw
from emu.model.generate.tape import Tape
from emu.model.model import find_model
from emu.model.parts.decoder import DecoderLayer, layer_operators
from emu.model.parts.feed_forward import FeedForward, gated_operators, gelu, squared_relu
from emu.model.parts.norms import LayerNorm1p, rms_norm
from emu.model.parts.rotary import rotate, rotate_part, rotation
from emu.model.plan.plan import Plan
from emu.model.stack.passes import COMPILED, EAGER, FUSED, KIND, UNFUSED, ElementCounts, element_wise
from emu.model.stack.stack import Stack
from tests.model.generate.executed import EXECUTED

ROWS, HEADS = 24, 2


def turned(part):
    cos, sin = (t[:, None] for t in rotation(ROWS, 16, 10_000.0))
    return lambda x: (rotate_part if part else rotate)(x.unflatten(-1, (HEADS, -1)), cos, sin)


# What runs, with how many inputs; where only a part of the operator is new, the rest is taken off.
RUNS = {
    "rms norm": (nn.RMSNorm, 1),
    "layer norm": (nn.LayerNorm, 1),
    "layer norm 1p": (LayerNorm1p, 1),
    "rotation": (turned(False), 1),
    "silu gate": (lambda a, b: functional.silu(a) * b, 2),
    "gelu gate": (lambda a, b: gelu(a) * b, 2),
    "gelu": (gelu, 1),
    "squared relu": (squared_relu, 1),
    "scale": (lambda x: x * 3.0, 1),
}


def ran(run, n, width):
    """Bytes moved forward and backward, and saved apart from parameters."""
    inputs = [torch.randn(3, ROWS, width, requires_grad=True) for _ in range(n)]
    parameters = list(run.parameters()) if isinstance(run, nn.Module) else []
    gradient = torch.randn(3, ROWS, width)
    seen, saved, own = [], {}, {p.untyped_storage()._cdata for p in parameters}

    def pack(t):
        if t.untyped_storage()._cdata not in own:
            saved[t.untyped_storage()._cdata] = t.untyped_storage()
        return t

    with OperatorCounter(seen.append):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = run(*inputs).view(3, ROWS, width)
        forward = len(seen)
        torch.autograd.grad(out, [*inputs, *parameters], gradient)
    kept = sum(s.nbytes() for s in saved.values())
    return sum(o.bytes for o in seen[:forward]), sum(o.bytes for o in seen[forward:]), kept, sum(p.numel() for p in parameters)


@pytest.mark.parametrize("what", sorted(RUNS))
@pytest.mark.parametrize("width", [32, 256])
def test_eager_pytorch_moves_as_many_bytes_as_the_table_says(what, width):
    run, n = RUNS[what]
    width = 32 if what == "rotation" else width
    forward, backward, kept, weights = ran(run(width) if isinstance(run, type) else run, n, width)
    constants = {"rotation": ROWS * 8, "layer norm 1p": width}.get(what, 0)
    listed = element_wise("it", what, 3 * ROWS * width, 3 * ROWS, constants, weights=weights).eager
    assert listed.forward.bytes() == pytest.approx(forward, rel=0.02)
    assert listed.backward.bytes() == pytest.approx(backward, rel=0.02)
    if what != "rotation":  # which keeps its tables of angles, that are the module's
        assert listed.saved.bytes() == pytest.approx(kept, rel=0.01)


def test_a_part_of_each_head_is_turned_and_put_back_among_the_rest():
    whole = element_wise("turn", "rotation", 3 * ROWS * 32, constants=ROWS * 8).eager
    put = element_wise("put", "part of a rotation", 3 * ROWS * 64).eager
    forward, backward, _, _ = ran(turned(True), 1, 64)
    assert (whole.forward + put.forward).bytes() == pytest.approx(forward, rel=0.02)
    assert (whole.backward + put.backward).bytes() == pytest.approx(backward, rel=0.02)


def test_a_residual_adds_what_came_in_and_both_gradients():
    """The gradient of x is the sum of that of the sum and that of the block, here a product with 3."""
    block, residual = (element_wise("it", what, 3 * ROWS * 32).eager for what in ("scale", "residual"))
    forward, backward, _, _ = ran(lambda x: x + x * 3.0, 1, 32)
    assert forward == (block.forward + residual.forward).bytes()
    assert backward == (block.backward + residual.backward).bytes()


def test_each_reader_but_the_first_adds_its_gradient():
    block, more = (element_wise("it", what, 3 * ROWS * 32).eager for what in ("scale", "sum of gradients"))
    x = torch.randn(3, ROWS, 32, requires_grad=True)
    readers, gradient, seen = [x * 2.0, x * 3.0, x * 4.0], torch.ones(3, ROWS, 32), []
    with OperatorCounter(seen.append):
        torch.autograd.grad(readers, x, [gradient] * 3)
    assert sum(o.bytes for o in seen) == 3 * block.backward.bytes() + 2 * more.backward.bytes()


def test_the_loss_of_a_vocabulary():
    logits, wanted = torch.randn(ROWS, 100, requires_grad=True), torch.randint(100, (ROWS,))
    seen = []
    with OperatorCounter(seen.append):
        loss = functional.cross_entropy(logits, wanted)
        forward = len(seen)
        loss.backward()
    listed = element_wise("loss", "cross entropy", ROWS * 100, ROWS).eager
    assert listed.forward.bytes() == pytest.approx(sum(o.bytes for o in seen[:forward]), rel=0.001)
    assert listed.backward.bytes() == pytest.approx(sum(o.bytes for o in seen[forward:]), rel=0.001)


class CastNorm(nn.RMSNorm):
    """The norm of torchtitan: worked out in float32, and then weighed in the dtype that came in."""

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.type_as(x) * self.weight


def turned_as_complex():
    turns = torch.polar(torch.ones(ROWS, 1, 8), torch.randn(ROWS, 1, 8))
    pairs = nn.Unflatten(-1, (HEADS, 8, 2))
    return lambda x: torch.view_as_real(torch.view_as_complex(pairs(x.float())) * turns).flatten(3).type_as(x)


def test_below_float32_pytorch_casts_and_norms_in_float32_as_the_table_says():
    listed = element_wise("it", "rms norm", 3 * ROWS * 32, 3 * ROWS, 0, weights=32).narrow
    forward, backward, kept = narrow_bytes(CastNorm(32).bfloat16())
    moved = (listed.forward.bytes(2, 2), listed.backward.bytes(2, 2))
    assert moved == pytest.approx((forward, backward), abs=4 * 3 * ROWS * 10)  # statistics of rows are of float32
    assert listed.saved.bytes(2, 2) == pytest.approx(kept, rel=0.05)


def test_below_float32_pytorch_turns_pairs_as_complex_numbers_as_the_table_says():
    """Angles are read forward; backward they are read, written as conjugates, and read again: 2 and 6 figures of float32."""
    listed = element_wise("it", "rotation", 3 * ROWS * 32, 3 * ROWS, ROWS * 8, weights=0).narrow
    more = 2 * ROWS * 8  # bytes of a table of float32; the list counts it as activations
    moved = listed.forward.bytes(2, 2) + 2 * more, listed.backward.bytes(2, 2) + 6 * more
    assert narrow_bytes(turned_as_complex())[:2] == moved


def narrow_bytes(run):
    x = torch.randn(3, ROWS, 32, dtype=torch.bfloat16, requires_grad=True)
    parameters = list(run.parameters()) if isinstance(run, nn.Module) else []
    gradient, seen, saved = torch.randn(3, ROWS, 32, dtype=torch.bfloat16), [], {}
    own = {p.untyped_storage()._cdata for p in parameters}

    def pack(t):
        if t.untyped_storage()._cdata not in own:
            saved[t.untyped_storage()._cdata] = t.untyped_storage()
        return t

    with OperatorCounter(seen.append):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = run(x).view(3, ROWS, 32)
        forward = len(seen)
        torch.autograd.grad(out, [x, *parameters], gradient)
    kept = sum(s.nbytes() for s in saved.values())
    return sum(o.bytes for o in seen[:forward]), sum(o.bytes for o in seen[forward:]), kept


def test_the_loss_of_logits_that_are_cast_to_float32():
    logits, wanted = torch.randn(ROWS, 100, dtype=torch.bfloat16, requires_grad=True), torch.randint(100, (ROWS,))
    seen = []
    with OperatorCounter(seen.append):
        loss = functional.cross_entropy(logits.float(), wanted)
        forward = len(seen)
        loss.backward()
    listed = element_wise("loss", "cross entropy", ROWS * 100, ROWS).narrow
    assert listed.forward.bytes(2) == pytest.approx(sum(o.bytes for o in seen[:forward]), rel=0.002)
    assert listed.backward.bytes(2) == pytest.approx(sum(o.bytes for o in seen[forward:]), rel=0.002)


def test_foreach_adamw_moves_what_its_operations_move():
    """The counting mode sees each; it counts the gradient twice where it is squared, which one kernel reads once."""
    model, counted = find_model("llama-tiny"), []
    parameters = [p.detach().requires_grad_() for p in model.build(8).parameters()]
    optimizer = torch.optim.AdamW(parameters, foreach=True)
    for _ in range(2):
        counted.clear()
        for p in parameters:
            p.grad = torch.ones_like(p)
        with OperatorCounter(counted.append):
            optimizer.step()
    n = sum(p.numel() for p in parameters)
    stack = Stack(precision=EXECUTED, optimizer="foreach")
    part = Part(model, Plan(global_batch=1, seq=8), stack, "dense")
    assert adamw(Tape("float32"), part, n).bytes == pytest.approx(sum(o.bytes for o in counted) - 4 * n, rel=0.001)


@pytest.fixture
def counted(monkeypatch):
    """Bytes of each graph that the compiler schedules, but for products and attention."""
    found = []
    made = scheduler.Scheduler.__init__

    def init(self, nodes):
        made(self, nodes)
        kinds = (ExternKernelSchedulerNode, NopKernelSchedulerNode)
        found.append(sum(n.get_read_write_buffers_sizes() for n in self.nodes if not isinstance(n, kinds)))

    monkeypatch.setattr(scheduler.Scheduler, "__init__", init)
    with torch._inductor.config.patch(force_disable_caches=True, compile_threads=1):
        yield found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:dynamo_pgo")
def test_a_compiled_layer_moves_what_the_scheduler_of_the_compiler_counts(counted):
    """All kernels count that are neither products nor attention; a rotation is left out, as it is not compiled."""
    tokens, hidden, ffn = 3 * ROWS, 64, 224
    layer = DecoderLayer(Unturned(hidden), FeedForward(hidden, ffn), CastNorm(hidden), CastNorm(hidden)).bfloat16()
    x = torch.randn(3, ROWS, hidden, dtype=torch.bfloat16, requires_grad=True)
    out = torch.compile(layer, fullgraph=True)(x)
    out.backward(torch.ones_like(out))
    part = layer_operators(rms_norm, tokens, hidden, attended(tokens, hidden), gated_operators("ffn", tokens, hidden, ffn))
    moved = [o.compiled for o in part if o.compiled]
    ours = [sum(getattr(passes, name).bytes(2, 2) for passes in moved) for name in ("forward", "backward")]
    assert len(counted) == 2
    assert ours == pytest.approx(counted, rel=0.1)


OF_A_LAYER = {"rms norm", "silu gate", "residual", "sum of gradients"}  # the test before compiles them beside their neighbours


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:dynamo_pgo")
@pytest.mark.parametrize("what", sorted(COMPILED.keys() - OF_A_LAYER))
def test_a_compiled_operator_moves_what_the_scheduler_of_the_compiler_counts(what, counted):
    run, n = RUNS[what]
    inputs = [torch.randn(3, ROWS, 32, requires_grad=True) for _ in range(n)]
    out = torch.compile(run, fullgraph=True)(*inputs)
    out.backward(torch.ones_like(out))
    compiled = element_wise("it", what, 3 * ROWS * 32).compiled
    assert [compiled.forward.bytes(), compiled.backward.bytes()] == counted


class Unturned(nn.Module):
    """Three products of one input, and one after them."""

    def __init__(self, hidden):
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        return self.wo(functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


def attended(tokens, hidden):
    """The sum of the gradients of three readers, which alone of attention is element by element here."""
    return (element_wise("inputs", "sum of gradients", 2 * tokens * hidden),)


def one_kernel(run, n):
    """Elements that one kernel moves forward and backward, and keeps, for each of its output.

    Forward it reads every input and writes the output. Backward it reads the gradient of the output and each input on whose
    values a gradient depends, and writes the gradients of all inputs; where these are what came in, nothing is left to do.
    """
    inputs = [torch.randn(3, ROWS, 32, requires_grad=True) for _ in range(n)]
    given = torch.randn(3, ROWS, 32)

    def gradients(of):
        return torch.autograd.grad(run(*of).view(3, ROWS, 32), of, given)

    def depend(i):
        other = [torch.randn(3, ROWS, 32, requires_grad=True) if j == i else x for j, x in enumerate(inputs)]
        return any(not torch.equal(a, b) for a, b in zip(gradients(inputs), gradients(other), strict=True))

    needed = sum(map(depend, range(n)))
    passed_on = all(torch.equal(gradient, given) for gradient in gradients(inputs))
    return n + 1, 0 if passed_on else 1 + needed + n, needed


@pytest.mark.parametrize("what", [*sorted(RUNS), "sum of blocks"])
def test_one_kernel_moves_inputs_and_outputs_once_and_what_its_gradient_needs(what):
    run, n = (torch.add, 2) if what == "sum of blocks" else RUNS[what]
    fused = FUSED[what]
    found = fused.forward.element, fused.backward.element, fused.saved.element
    assert found == one_kernel(run(32) if isinstance(run, type) else run, n)


def test_one_kernel_of_a_norm_keeps_the_statistics_of_each_row():
    """PyTorch's own kernels give them beside the output: one of an RMSNorm, mean and deviation of a LayerNorm."""
    x, weight = torch.randn(ROWS, 32), torch.ones(32)
    _, *of_rms = torch.ops.aten._fused_rms_norm(x, [32], weight, 1e-5)
    _, *of_layer = torch.ops.aten.native_layer_norm(x, [32], weight, weight, 1e-5)
    for what, kept in (("rms norm", of_rms), ("layer norm", of_layer), ("layer norm 1p", of_layer)):
        assert [moved.row for moved in FUSED[what]] == [len(kept)] * 3
    assert all(moved.row == 0 for what in RUNS.keys() - {"rms norm", "layer norm", "layer norm 1p"} for moved in FUSED[what])


def test_one_kernel_reads_the_constants_that_all_rows_share():
    tables = rotation(ROWS, 16, 10_000.0)
    assert [FUSED["rotation"].forward.constant, FUSED["rotation"].backward.constant] == [len(tables)] * 2
    # Positions are added; backward those of all sequences are summed: each gradient is read, the table's is written.
    assert FUSED["positions"] == (ElementCounts(1 + 1, 0, 1), ElementCounts(1, 0, 1), ElementCounts())
    assert all(m.constant == 0 for what in FUSED.keys() - {"rotation", "positions"} for m in FUSED[what])


def test_one_kernel_of_a_loss_writes_the_softmax_that_its_gradient_reads():
    forward, backward, saved = FUSED["cross entropy"]
    assert (saved.element, forward.element, backward.element) == (1, 1 + saved.element, saved.element + 1)
    assert (forward.row, backward.row) == (1, 0)  # the loss of a token
    assert {moved.row_bytes for moved in (forward, backward, saved)} == {torch.int64.itemsize}  # the word that was wanted


def test_what_another_kernel_does_takes_no_time_of_its_own_where_kernels_are_fused():
    """The sum of both ways' gradients is one kernel, as the sum of two blocks is; a product reads for all of its readers."""
    add = one_kernel(torch.add, 2)[0]
    assert (FUSED["residual"].forward.element, FUSED["residual"].backward.element) == (add, add)
    for what in ("part of a rotation", "sum of gradients"):
        one = element_wise("it", what, 1000, 10, 10).fused
        assert (one.forward.bytes(), one.backward.bytes()) == (0, 0)


def test_every_row_is_in_both_tables_and_has_a_derivation():
    assert EAGER.keys() == FUSED.keys() == KIND.keys()
    others = {"sum of blocks", "positions", "residual", "cross entropy", "part of a rotation", "sum of gradients"}
    assert RUNS.keys() | others == FUSED.keys()


def kept_by_loss(logits, cast):
    saved = {}

    def pack(t):
        saved[t.untyped_storage()._cdata] = t.untyped_storage()
        return t

    wanted = torch.randint(logits.shape[1], (len(logits),))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        functional.cross_entropy(cast(logits), wanted)
    return sum(storage.nbytes() for storage in saved.values())


def test_a_loss_keeps_its_softmax_and_the_words_that_were_wanted():
    """The softmax of logits that were cast to float32 is of float32."""
    listed = element_wise("loss", "cross entropy", ROWS * 100, ROWS)
    whole = torch.randn(ROWS, 100, requires_grad=True)
    narrow = whole.detach().bfloat16().requires_grad_()
    assert listed.eager.saved.bytes() == pytest.approx(kept_by_loss(whole, lambda x: x), abs=8)  # and the weight of all
    assert listed.narrow.saved.bytes(2) == pytest.approx(kept_by_loss(narrow, torch.Tensor.float), abs=8)


def test_positions_are_added_to_each_sequence_and_their_gradients_are_summed_over_them():
    x, table = torch.randn(3, ROWS, 32, requires_grad=True), torch.randn(ROWS, 32, requires_grad=True)
    given, seen = torch.ones(3, ROWS, 32), []
    listed = element_wise("positions", "positions", 3 * ROWS * 32, constants=ROWS * 32).eager
    with OperatorCounter(seen.append):
        out = x + table
        forward = len(seen)
        torch.autograd.grad(out, [x, table], given)
    assert listed.forward.bytes() == sum(o.bytes for o in seen[:forward])
    assert listed.backward.bytes() == sum(o.bytes for o in seen[forward:])
    assert listed.saved.bytes() == 0


def test_megatrons_unfused_loss_moves_what_its_kernels_move_one_by_one():
    """An element of float32 is two of bfloat16. In place each kernel reads and writes what it changes."""
    cast, largest, subtract, power, total, divide = 1 + 2, 2, 2 + 2, 2 + 2, 2, 2 + 2
    multiply, back = 2 + 2, 2 + 1
    forward, backward, saved = UNFUSED["cross entropy"]
    assert forward.element == cast + largest + subtract + power + total + divide
    assert (backward.element, saved.element) == (multiply + back, 2)
    assert {moved.row_bytes for moved in (forward, backward, saved)} == {torch.int64.itemsize}
    assert (forward.row, backward.row, saved.row) == (1, 0, 0)  # the loss of a token


def test_a_compiled_layer_reads_and_writes_what_lies_between_its_products_once():
    """Forward: a norm of what came in; a sum with a norm of it, of which both are written; a sum."""
    norm, sum_and_norm, add = 1 + 1, 2 + 2, 2 + 1
    moved = {what: COMPILED[what].forward.element for what in ("rms norm", "residual", "sum of gradients")}
    assert 2 * moved["rms norm"] + 2 * moved["residual"] == norm + sum_and_norm + add
    assert moved["sum of gradients"] == 0
    assert [of.row for of in COMPILED["rms norm"]] == [1, 1, 1]  # its statistic is written, read and kept
    assert COMPILED["rms norm"].saved.element == 0  # what came in is kept by the sum before it


def test_what_tensor_parallelism_cuts_moves_as_much_in_all_its_ranks_as_whole():
    """Statistics of rows and indices are not shared out; constants are whole on each rank."""
    whole, cut = (element_wise("it", "cross entropy", 6000, 30, 7, weights=11, cut=cut) for cut in (False, True))
    for one, other in ((whole.eager, cut.eager), (whole.fused, cut.fused), (whole.narrow, cut.narrow)):
        for name in ("forward", "backward_input", "backward_weight", "saved"):
            own, shared = getattr(one, name), getattr(other, name)
            assert own.bytes(2, 2) == shared.bytes(2, 2)
            assert own.cut == shared.whole == 0
    assert (whole.outputs.whole, cut.outputs.cut, whole.cut, cut.cut) == (6000, 6000, "", "both")
    turned = element_wise("it", "rotation", 6000, 30, 7, cut=True).eager.forward
    assert (turned.whole, turned.cut) == (4 * 7, 9 * 6000)
