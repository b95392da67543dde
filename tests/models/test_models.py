"""Held of every model in the catalogue: its operator list is what its module does."""

from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from torch import nn

from emu.model.model import EMBEDDING, HEAD, MODELS
from emu.model.operator import BIAS, LOOKUP, PRODUCT, Cut, Tokens
from emu.model.parallel.tensor_parallel import STYLES
from tests.models.counted import SEQ, TOKENS, Counted, count, few_layers

NAMES = [name for name, _ in MODELS]
CUTS = {"colwise", "rowwise", "inner rowwise", "vocabulary", "words", "gathered", "experts"}  # styles that cut parameters


@pytest.fixture(scope="module", params=NAMES)
def counted(request) -> Counted:
    return count(request.param)


def test_parameters_are_the_modules(counted):
    assert counted.model.parameters() == sum(p.numel() for p in counted.module.parameters())


def test_flops_are_what_runs_to_the_last_one(counted):
    ran = (counted.forward, counted.backward, counted.backward_input)
    listed = (lambda o: o.eager.forward, lambda o: o.eager.backward, lambda o: o.eager.backward_input)
    assert [sum(o.flops for o in part) for part in ran] == [counted.listed(part).flops for part in listed]


def test_bytes_of_products_and_attention_are_what_runs(counted):
    size = 4 if counted.forward[0].dtype == "float32" else 2
    forward = counted.listed(lambda o: o.eager.forward, lambda o: bool(o.eager.forward.flops) or o.kind == BIAS)
    assert sum(o.bytes for o in counted.forward if o.flops) == forward.bytes(size, size)
    backward = counted.listed(lambda o: o.eager.backward, lambda o: bool(o.eager.backward.flops))
    assert sum(o.bytes for o in counted.backward if o.flops) == backward.bytes(size, size)


def test_other_memory_traffic_is_within_two_percent_of_what_runs(counted):
    if counted.forward[0].dtype != "float32":
        pytest.skip("eager PyTorch converts bfloat16 back and forth; the tiny model of this architecture holds it")
    forward = counted.listed(lambda o: o.eager.forward, lambda o: not o.eager.forward.flops and o.kind != BIAS)
    assert forward.bytes() == pytest.approx(sum(o.bytes for o in counted.forward if not o.flops), rel=0.02)
    backward = counted.listed(lambda o: o.eager.backward, lambda o: not o.eager.backward.flops)
    assert backward.bytes() == pytest.approx(sum(o.bytes for o in counted.backward if not o.flops), rel=0.02)


def test_what_is_saved_for_the_backward_is_within_one_percent_of_what_is_kept(counted):
    if counted.forward[0].dtype != "float32":
        pytest.skip("eager PyTorch keeps float32 copies of bfloat16; the tiny model of this architecture holds it")
    assert counted.listed(lambda o: o.eager.saved).bytes() == pytest.approx(counted.saved_bytes, rel=0.01)


def test_a_fused_kernel_moves_and_keeps_no_more_than_eager_pytorch(counted):
    for _, operator in counted.model.operators(TOKENS):
        for part in ("forward", "backward", "saved"):
            fused, eager = (getattr(passes, part) for passes in (operator.fused, operator.eager))
            assert fused.bytes() <= eager.bytes(), operator.name
            assert fused.flops <= eager.flops


def test_each_parameter_is_listed_under_its_modules_name(counted):
    sizes: dict[str, int] = {}
    for name, parameter in counted.module.named_parameters():
        path = ".".join("*" if word.isdecimal() else word for word in name.split(".") if word not in {"weight", "bias"})
        sizes[path] = sizes.get(path, 0) + parameter.numel()
    assert sizes == parameters_by_path(counted.model, Cut())


@pytest.mark.parametrize("name", [name for name in NAMES if name.endswith("-tiny")])
def test_products_that_read_one_input_are_those_whose_modules_are_called_with_one_tensor(name):
    model = few_layers(name)
    module, given, readers = model.build(SEQ), [], defaultdict(set)
    for path, linear in module.named_modules():
        if isinstance(linear, nn.Linear):
            linear.register_forward_pre_hook(lambda _, args, path=path: given.append((path, args[0])))
    module(torch.zeros(1, SEQ, dtype=torch.long))  # `given` keeps the tensors, so that no number is used for two
    for path, tensor in given:
        layer, _, operator = path.removeprefix("layers.").partition(".")
        readers[layer, id(tensor)].add(operator or layer)
    called = {frozenset(names) for names in readers.values()}
    linear = set().union(*called)
    for _, _, operators in model.parts(TOKENS):
        listed = defaultdict(set)
        for operator in operators:
            if operator.kind == PRODUCT and operator.name in linear:
                listed[operator.reads_with or operator.name].add(operator.name)
        assert {frozenset(names) for names in listed.values()} <= called


def parameters_by_path(model, cut):
    sizes: dict[str, int] = {}
    for times, part, operators in model.parts(Tokens(1)):
        for operator in operators:
            if operator.parameters:
                path = operator.name if part in (EMBEDDING, HEAD) else f"layers.*.{operator.name}"
                sizes[path] = sizes.get(path, 0) + times * operator.on(cut).parameters
    return sizes


def test_tensor_parallelism_cuts_what_the_shards_name_and_nothing_else(counted):
    model = counted.model
    whole, half = parameters_by_path(model, Cut()), parameters_by_path(model, Cut(tp=2))
    cut = {path for path in whole if half[path] < whole[path]}
    named = {path for path, style in model.shards.items() if style in CUTS}
    assert cut == {path for path in whole if path in named or path.rpartition(".")[0] in named}  # a style of a block of weights
    assert named <= cut | {path.rpartition(".")[0] for path in cut}
    assert set(model.shards.values()) <= STYLES.keys()


def test_shards_have_together_what_the_whole_has(counted):
    for _, operator in counted.model.operators(TOKENS):
        for cut in (Cut(tp=2), Cut(tp=2, sequence=True), Cut(tp=2, ep=2)):
            shard = operator.on(cut).eager
            tokens = (operator.sequence and cut.sequence) or (operator.routed and cut.exchanges)
            n = 2 if operator.cut or tokens else 1
            assert n * shard.forward.flops == operator.eager.forward.flops
            assert n * shard.backward.cut == operator.eager.backward.cut
            assert (2 if tokens else 1) * shard.forward.whole == operator.eager.forward.whole


def test_flops_per_token_are_six_a_parameter_and_attention_not_halved(counted):
    """Against the executed ones: three products a parameter, and attention by a flash kernel, whose scores come twice."""
    model = counted.model
    whole = sum(p.numel() for p in counted.module.parameters())
    operators = list(model.operators(Tokens(1, context=SEQ)))
    unseen = sum(n * (o.parameters - o.active_parameters) for n, o in operators)
    tables = sum(n * o.parameters for n, o in operators if o.kind == LOOKUP)
    tied = model.vocab * model.hidden if model.tied else 0
    attended = sum(n * o.fused.forward.flops for n, o in operators if o.kind == "attention")
    assert model.flops_per_token(SEQ) == 6 * (whole - unseen - tables + tied) + 3 * attended


def test_attention_alone_depends_on_the_context(counted):
    short, long = (list(counted.model.operators(Tokens(SEQ, context=c))) for c in (SEQ, 4 * SEQ))
    changed = {o.kind for (_, o), (_, other) in zip(short, long, strict=True) if o != other}
    assert changed == {"attention"}


def test_a_model_is_plain_data_that_can_be_changed_and_compared(counted):
    assert replace(counted.model, vocab=1) != counted.model
    assert replace(counted.model) == counted.model
