"""The counting mode against torch's own counter, arithmetic by hand, and storages that are known to live."""

import threading

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard  # noqa: F401 - defines the operators of FSDP2
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from emu.backend.rank import operator_counter
from emu.backend.rank.operator_counter import Operator, OperatorCounter, pause_counting
from emu.cluster.rank_state.cpu_device import emulate_device
from emu.errors import RunError
from emu.trace.kernel_shape import Kernel, Shape
from tests.backend.rank.counted import counted

F32 = 4
SCALAR, ROW = torch.ones(1).expand(100), torch.ones(100)


def flops(operators):
    return sum(o.flops for o in operators)


def test_matrix_products_have_the_flops_that_torch_counts():
    first, second = nn.Linear(12, 20), nn.Linear(20, 8, bias=False)
    x, batch = torch.randn(3, 5, 12), torch.randn(4, 6, 7)
    image, kernel = torch.randn(2, 3, 8, 8, requires_grad=True), torch.randn(5, 3, 3, 3, requires_grad=True)

    def program():
        second(first(x).relu()).square().sum().backward()
        functional.conv2d(image, kernel, padding=1).sum().backward()
        torch.bmm(batch, batch.transpose(1, 2))
        torch.baddbmm(torch.zeros(4, 6, 6), batch, batch.transpose(1, 2))

    with FlopCounterMode(display=False) as oracle:
        program()
    assert flops(counted(program)) == oracle.get_total_flops() > 0


def test_products_with_vectors_are_twice_the_matrix():
    a, v = torch.randn(7, 9), torch.randn(9)
    assert flops(counted(lambda: torch.mv(a, v))) == 2 * 7 * 9
    assert flops(counted(lambda: torch.addmv(torch.zeros(7), a, v))) == 2 * 7 * 9
    assert flops(counted(lambda: torch.dot(v, v))) == 2 * 9
    assert (
        flops(counted(lambda: torch.addbmm(torch.zeros(2, 4), torch.ones(5, 2, 3), torch.ones(5, 3, 4)))) == 2 * 5 * 2 * 3 * 4
    )


@pytest.mark.parametrize("kv_heads", [8, 2])
def test_attention_counts_two_products_forward_and_five_backward_whatever_the_mask(kv_heads):
    q = torch.randn(2, 8, 16, 4, requires_grad=True)
    k, v = (torch.randn(2, kv_heads, 16, 4, requires_grad=True) for _ in range(2))
    product = 2 * 2 * 8 * 16 * 16 * 4

    def program(causal):
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
        out.backward(torch.ones_like(out))

    for causal in (False, True):
        assert [o.flops for o in counted(lambda c=causal: program(c)) if o.flops] == [2 * product, 5 * product]


def test_a_product_without_a_formula_is_refused_by_name():
    a = torch.ones(32, 32, dtype=torch.int8)
    with pytest.raises(RunError, match=r"^count: aten\._int_mm multiplies matrices and has no formula"):
        counted(lambda: torch._int_mm(a, a))


def test_names_that_only_look_like_products_are_not_refused():
    counted(lambda: functional.interpolate(torch.ones(1, 1, 4, 4), scale_factor=2, mode="bilinear"))
    counted(lambda: (torch.linspace(0, 1, 5), torch.randn(3, 3).norm(), torch.ones(3).cumsum(0), torch.ones(2, 2).trace()))


def test_views_and_allocations_are_not_reported():
    x = torch.randn(4, 6)
    assert counted(lambda: (x.view(24), x.t(), x[1:], x.expand(2, 4, 6), x.detach(), x.split(2), torch.empty(9))) == []
    assert counted(lambda: torch.ops.aten._unsafe_view(x, [24])) == []  # its schema does not say that it is one


def test_bytes_are_what_is_read_and_written():
    x, y = torch.randn(10), torch.randn(10)
    rows = {
        "aten.add": (counted(lambda: x + y), 3),
        "aten.add_": (counted(lambda: x.add_(y)), 3),
        "aten.copy_": (counted(lambda: x.copy_(y)), 2),
        "aten.zero_": (counted(x.zero_), 1),
        "aten.zeros_like": (counted(lambda: torch.zeros_like(x)), 1),
    }
    for name, (operators, passes) in rows.items():
        assert operators == [Operator(name, "float32", 0, passes * 10 * F32, passes * 10)]


X, Y, Z = torch.ones(10), torch.ones(10), torch.empty(10)
TABLE, ROWS, PICKED = torch.ones(100, 8), torch.tensor([3, 7]), torch.ones(2, 8)
PLACES = ROWS[:, None].repeat(1, 8)  # [2, 8]
LOGITS, TARGET = torch.randn(6, 50), torch.arange(6)
IMAGE, LABELS = torch.randn(2, 5, 4, 4), torch.zeros(2, 4, 4, dtype=torch.int64)
MASK = torch.arange(10) < 3
I64 = 8
# By operator: what runs, the float32 elements that it reads and writes, and the bytes of indices and masks that it reads.
TRAFFIC = {
    "aten.fill_": (lambda: X.fill_(1.0), 0, 10, 0),
    "aten.normal_": (X.normal_, 0, 10, 0),
    "aten.uniform_": (X.uniform_, 0, 10, 0),
    "aten.random_": (X.random_, 0, 10, 0),
    "aten.bernoulli_": (lambda: X.bernoulli_(0.5), 0, 10, 0),
    "aten.exponential_": (X.exponential_, 0, 10, 0),
    "aten.mul_": (lambda: X.mul_(Y), 20, 10, 0),
    "aten.add": (lambda: torch.add(X, Y, out=Z), 20, 10, 0),
    "aten.ones_like": (lambda: torch.ones_like(X), 0, 10, 0),
    "aten.full_like": (lambda: torch.full_like(X, 2.0), 0, 10, 0),
    "aten.rand_like": (lambda: torch.rand_like(X), 0, 10, 0),
    "aten.randn_like": (lambda: torch.randn_like(X), 0, 10, 0),
    "aten.new_zeros": (lambda: X.new_zeros(20), 0, 20, 0),
    "aten.new_ones": (lambda: X.new_ones(20), 0, 20, 0),
    "aten.new_full": (lambda: X.new_full((20,), 1.0), 0, 20, 0),
    "aten.zeros": (lambda: torch.zeros(10), 0, 10, 0),
    "aten.cat": (lambda: torch.cat([X, Y]), 20, 20, 0),
    "aten.where": (lambda: torch.where(MASK, X, Y), 20, 10, 10),
    "aten.masked_fill_": (lambda: X.masked_fill_(MASK, 0.0), 10, 10, 10),
    "aten._foreach_add_": (lambda: torch._foreach_add_([X, Y], [Y, X]), 40, 20, 0),
    "aten._foreach_copy_": (lambda: torch._foreach_copy_([X, Z], [Y, Y]), 20, 20, 0),
    "aten._foreach_zero_": (lambda: torch._foreach_zero_([X, Z]), 0, 20, 0),
    "aten.embedding": (lambda: functional.embedding(ROWS, TABLE), 16, 16, 2 * I64),
    "aten.index_select": (lambda: TABLE.index_select(0, ROWS), 16, 16, 2 * I64),
    "aten.index": (lambda: TABLE[ROWS], 16, 16, 2 * I64),
    "aten.gather": (lambda: TABLE.gather(0, PLACES), 16, 16, 16 * I64),
    "aten.take": (lambda: TABLE.take(ROWS), 2, 2, 2 * I64),
    "aten.index_add_": (lambda: TABLE.index_add_(0, ROWS, PICKED), 32, 16, 2 * I64),
    "aten.index_copy_": (lambda: TABLE.index_copy_(0, ROWS, PICKED), 16, 16, 2 * I64),
    "aten.index_fill_": (lambda: TABLE.index_fill_(0, ROWS, 0.0), 0, 16, 2 * I64),
    "aten.index_put_": (lambda: TABLE.index_put_((ROWS,), PICKED, accumulate=True), 32, 16, 2 * I64),
    "aten.scatter_": (lambda: TABLE.scatter_(0, PLACES, PICKED), 16, 16, 16 * I64),
    "aten.scatter_add_": (lambda: TABLE.scatter_add_(0, PLACES, PICKED), 32, 16, 16 * I64),
    "aten.scatter_reduce_": (lambda: TABLE.scatter_reduce_(0, PLACES, PICKED, "amax"), 32, 16, 16 * I64),
    "aten.nll_loss2d_forward": (lambda: functional.nll_loss(IMAGE, LABELS), 32, 2, 32 * I64),
}


@pytest.mark.parametrize("name", TRAFFIC)
def test_an_operator_reads_and_writes_what_its_meaning_says(name):
    program, read, written, indices = TRAFFIC[name]
    (operator,) = counted(program)
    assert (operator.name, operator.dtype) == (name, "float32")
    assert (operator.count, operator.bytes) == (read + written, (read + written) * F32 + indices)


@pytest.mark.parametrize("name", ["index_add_", "scatter_add_", "index_add", "scatter_add"])
def test_a_sum_of_rows_has_the_sizes_of_what_is_added(name):
    rows, index = torch.ones(6, 5), torch.tensor([0, 2, 0, 1, 2, 2])
    to = index if name.startswith("index") else index[:, None].expand_as(rows)
    (operator,) = [each for each in counted(lambda: getattr(torch.zeros(3, 5), name)(0, to, rows)) if name in each.name]
    assert operator.shape == Shape(Kernel.SCATTER_ADD, 1, 6, 5, 1)


def test_every_operator_that_no_schema_describes_is_held():
    """A name in one of these tables without a row above would be a figure that nobody has checked."""
    elsewhere = {"copy_", "zero_", "zeros_like", "nll_loss_forward", "_embedding_bag", "_embedding_bag_forward_only"}
    held = {name.removeprefix("aten.") for name in TRAFFIC} | elsewhere
    assert operator_counter._OVERWRITES | operator_counter._SHAPES | set(operator_counter._LOOKED_UP) <= held


@pytest.mark.parametrize(("reduction", "losses"), [("mean", 1), ("sum", 1), ("none", 6)])
def test_a_loss_reads_one_logit_a_target_forward_and_none_backward(reduction, losses):
    logits = LOGITS.clone().requires_grad_()
    seen = {}

    def program():
        seen["loss"] = functional.nll_loss(logits, TARGET, reduction=reduction)

    (forward,) = counted(program)
    assert forward.name == "aten.nll_loss_forward"
    assert forward.bytes == (6 + losses + 1) * F32 + 6 * I64  # also the sum of the weights
    gradient = torch.ones_like(seen["loss"])
    (backward,) = counted(lambda: seen["loss"].backward(gradient))
    assert backward.name == "aten.nll_loss_backward"
    assert backward.bytes == (losses + 1 + 6 * 50) * F32 + 6 * I64


def test_the_loss_of_an_image_reads_no_logit_backward():
    image = IMAGE.clone().requires_grad_()
    loss = functional.nll_loss(image, LABELS)
    backward = counted(lambda: loss.backward(torch.tensor(1.0)))[0]
    assert backward.name == "aten.nll_loss2d_backward"
    assert backward.bytes == (1 + 1 + 2 * 5 * 4 * 4) * F32 + 32 * I64


def test_a_bag_of_embeddings_reads_the_rows_that_are_in_it():
    words, starts = torch.arange(12), torch.tensor([0, 7])
    (bag, *_) = [
        o for o in counted(lambda: functional.embedding_bag(words, TABLE, starts, mode="sum")) if "embedding_bag" in o.name
    ]
    out, known = 2 * 8, 12 * I64 + 2 * I64
    assert bag.bytes >= (12 * 8 + out) * F32 + known
    assert bag.bytes < TABLE.numel() * F32


def test_a_mask_may_choose_all_of_what_it_writes():
    value = torch.tensor(2.0)
    (put,) = counted(lambda: X.index_put_((MASK,), value))
    assert put.bytes == (10 + 10 + 1) * F32 + 10


def test_indices_of_some_dims_write_whole_rows_of_the_others():
    cube, columns, rows = torch.ones(5, 6, 7), torch.ones(5, 1, 7), torch.ones(2, 7)
    (put,) = counted(lambda: torch.ops.aten.index_put_(cube, [None, ROWS[:1]], columns))
    assert put.bytes == 3 * 35 * F32 + I64
    pairs = torch.tensor([0, 1])
    (put,) = counted(lambda: cube.index_put_((pairs, pairs), rows))
    assert put.bytes == 3 * 14 * F32 + 2 * 2 * I64


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.empty_like(X),
        lambda: torch.empty_strided((2,), (1,)),
        lambda: X.new_empty(3),
        lambda: X.new_empty_strided((2,), (1,)),
    ],
)
def test_what_is_only_allocated_is_no_work(program):
    assert counted(program) == []


def test_an_expanded_tensor_is_read_once():
    (add,) = counted(lambda: torch.add(SCALAR, ROW))
    assert add.bytes == (1 + 100 + 100) * F32


def test_an_embedding_reads_only_the_rows_it_looks_up():
    table, tokens = torch.randn(1000, 8), torch.tensor([3, 7])
    (lookup,) = counted(lambda: functional.embedding(tokens, table))
    assert lookup.bytes == 2 * 2 * 8 * F32 + 2 * 8  # rows read and written, two int64 indices
    assert (lookup.dtype, lookup.count) == ("float32", 2 * 2 * 8)


def test_count_is_of_the_elements_that_another_dtype_would_scale():
    (compare,) = counted(lambda: torch.eq(ROW, ROW))
    assert (compare.dtype, compare.bytes, compare.count) == ("float32", 2 * 400 + 100, 200)
    (cast,) = counted(lambda: ROW.to(torch.bfloat16))
    assert (cast.dtype, cast.bytes, cast.count) == ("bfloat16", 400 + 200, 100)


def test_a_fused_optimizer_reads_four_and_writes_three_numbers_a_parameter():
    weight = nn.Parameter(torch.randn(50))
    weight.grad = torch.randn(50)
    optimizer = torch.optim.AdamW([weight], fused=True)
    optimizer.step()
    step = next(o for o in counted(optimizer.step) if o.name == "aten._fused_adamw_")
    assert step.bytes - 7 * 50 * F32 in range(3 * F32)  # and the step number


def test_inference_mode_is_taken_apart_too():
    layer, x = nn.Linear(6, 4), torch.randn(3, 6)

    def program():
        with torch.inference_mode():
            layer(x)

    assert flops(counted(program)) == 2 * 3 * 6 * 4


def test_counting_changes_no_bit():
    """An operator that has a kernel must not be taken apart, as torch's own counter does to silu's backward."""
    first, x = nn.Linear(64, 64), torch.randn(32, 64)

    def gradient():
        first.zero_grad()
        functional.silu(functional.rms_norm(first(x), (64,))).square().sum().backward()
        return first.weight.grad

    plain = gradient()
    with OperatorCounter(lambda _: None):
        counted_too = gradient()
    assert torch.equal(plain, counted_too)


def test_paused_work_is_charged_to_nobody():
    def program():
        with pause_counting():
            torch.ones(1000).add_(1)
        torch.mul(ROW, 2)

    assert [o.name for o in counted(program)] == ["aten.mul"]


def test_only_the_thread_that_entered_is_counted():
    def program():
        thread = threading.Thread(target=lambda: torch.mul(ROW, 2))
        thread.start()
        thread.join()

    assert counted(program) == []


def test_live_and_peak_storage_of_a_hand_computed_example():
    weight = torch.randn(100)  # 400 B
    count = OperatorCounter(lambda _: None)
    count.track([weight, weight[50:]])  # one storage, once
    assert count.memory.live_bytes == 400
    with count:
        a = weight * 2  # 800
        b = a + 1  # 1200
        view = b[:10]
        del a, b  # 800: the view holds all of b
        assert count.memory.live_bytes == 800
        c = view + 1  # 840
        c += 1
        del view  # 440
    assert (count.memory.live_bytes, count.memory.peak_bytes) == (440, 1200)
    del c
    assert count.memory.live_bytes == 400


def test_storage_that_is_freed_and_taken_again_lives_as_large_as_it_is():
    count = OperatorCounter(lambda _: None)
    with count:
        held = torch.empty(100)
        held.resize_(300)
        assert (count.memory.live_bytes, count.memory.peak_bytes) == (1200, 1200)
    with emulate_device(), count:
        held.untyped_storage().resize_(0)
        assert count.memory.live_bytes == 0
        other = torch.empty(200)
        held.untyped_storage().resize_(400)
        assert (count.memory.live_bytes, count.memory.peak_bytes) == (1200, 1200)
        del other
        held.untyped_storage().resize_(1600)
        assert (count.memory.live_bytes, count.memory.peak_bytes) == (1600, 1600)
        del held
        assert count.memory.live_bytes == 0
    assert "resize_" not in vars(torch.UntypedStorage)


def test_what_fsdp_copies_before_it_gathers_is_read_and_written_once():
    parts, whole = [torch.ones(3), torch.ones(5)], torch.empty(32)
    (copy,) = counted(lambda: torch.ops.fsdp.all_gather_copy_in(parts, whole, [3, 5], 8, 2))
    assert (copy.name, copy.bytes, copy.count) == ("fsdp.all_gather_copy_in", 2 * 8 * F32, 2 * 8)


def test_activations_live_until_backward_has_used_them():
    x = torch.randn(100, requires_grad=True)
    count = OperatorCounter(lambda _: None)
    with count:
        loss = x.exp().exp().sum()  # both results are saved for backward
        assert count.memory.live_bytes == 2 * 400 + 4
        loss.backward()
        assert count.memory.live_bytes == 400 + 4  # the gradient and the loss
