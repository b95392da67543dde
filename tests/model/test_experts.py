"""Routing, dispatch and experts against a loop over tokens."""

import pytest
import torch
from torch.nn import functional

from emu.backend.rank.operator_counter import OperatorCounter
from emu.model.model import MODELS
from emu.model.operator import Amount, Cut, Tokens
from emu.model.parts.attention_block import LatentAttention, LatentSizes
from emu.model.parts.expert_block import ExpertBlock, Experts, limit_capacity, sparse_operators
from emu.model.parts.feed_forward import FeedForward, gated_operators
from emu.model.parts.token_routing import ExpertRouting, Router, combine, dispatch, imbalance, rows_of, set_balance

HIDDEN, FFN, N = 16, 24, 40
SOFT = ExpertRouting(6, 2)
GROUPED = ExpertRouting(8, 3, "sigmoid", scale=2.5, groups=4, top_groups=2, corrected=True)


@pytest.fixture(autouse=True)
def _seed():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


def by_loop(block, x, chosen, weights):
    """Each token through each of its experts, one at a time."""
    e, out = block.experts, torch.zeros_like(x)
    for token, (experts, shares) in enumerate(zip(chosen.tolist(), weights, strict=True)):
        for expert, share in zip(experts, shares, strict=True):
            inner = functional.silu(x[token] @ e.w1[expert]) * (x[token] @ e.w3[expert])
            out[token] += share * (inner @ e.w2[expert])
    return out


def block(c, shared=None):
    made = ExpertBlock(HIDDEN, c, Experts(c.experts, HIDDEN, FFN, "silu gate"), shared)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return made


@pytest.mark.parametrize(
    "c", [SOFT, GROUPED, ExpertRouting(4, 1, normalised=False)], ids=["softmax", "grouped", "one, not normalised"]
)
def test_a_token_goes_through_the_experts_that_its_router_chose(c):
    one, x = block(c), torch.randn(2, N // 2, HIDDEN)
    chosen, weights = one.router(x.flatten(0, 1))
    torch.testing.assert_close(one(x).flatten(0, 1), by_loop(one, x.flatten(0, 1), chosen, weights), rtol=1e-4, atol=1e-5)


def test_every_gradient_is_that_of_the_loop():
    one, x = block(SOFT), torch.randn(N, HIDDEN)
    wanted = torch.randn(N, HIDDEN)
    chosen, weights = one.router(x)
    by_loop(one, x, chosen, weights).mul(wanted).sum().backward()
    expected = {name: p.grad.clone() for name, p in one.named_parameters()}
    one.zero_grad()
    one(x[None])[0].mul(wanted).sum().backward()
    for name, parameter in one.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-3, atol=1e-4)


def test_a_shared_block_sees_every_token():
    shared = FeedForward(HIDDEN, FFN)
    with_it = block(SOFT, shared)
    x = torch.randn(1, N, HIDDEN)
    together = with_it(x)
    with_it.shared = None
    torch.testing.assert_close(together, with_it(x) + shared(x))


def test_an_expert_that_no_token_chose_has_no_gradient():
    one, x = block(SOFT), torch.randn(1, 2, HIDDEN)
    chosen = set(one.router(x[0])[0].flatten().tolist())
    one(x).square().sum().backward()
    assert {e for e in range(6) if one.experts.w1.grad[e].abs().sum() > 0} == chosen


def test_softmax_scores_are_those_of_the_best_alone():
    """Normalised, the softmax over all is the softmax over the chosen: Jiang et al. (2024), equation of section 2.1."""
    router, x = Router(HIDDEN, SOFT), torch.randn(N, HIDDEN)
    chosen, weights = router(x)
    torch.testing.assert_close(weights, router.gate(x).gather(1, chosen).softmax(-1))


def test_groups_that_are_not_among_the_best_are_closed():
    router, x = Router(HIDDEN, GROUPED), torch.randn(N, HIDDEN)
    router.correction.copy_(torch.randn(8))
    chosen, weights = router(x)
    scores = router.gate(x).sigmoid()
    for token in range(N):
        ranked = (scores[token] + router.correction).view(4, 2)
        open_groups = ranked.sum(1).topk(2).indices.tolist()  # two experts a group: its two best are all
        allowed = [2 * g + i for g in open_groups for i in range(2)]
        best = sorted(allowed, key=lambda e: -ranked.flatten()[e].item())[:3]
        assert chosen[token].tolist() == best
        taken = scores[token, best]  # the correction chooses and does not weigh
        torch.testing.assert_close(weights[token], 2.5 * taken / taken.sum())


def test_rows_are_sorted_by_expert_and_each_experts_by_token():
    chosen = torch.tensor([[2, 0], [1, 2], [2, 1]])
    sent = dispatch(chosen, ExpertRouting(4, 2))
    assert sent.tokens.tolist() == [0, 1, 2, 0, 1, 2]
    assert sent.choices.tolist() == [1, 2, 5, 0, 3, 4]
    assert sent.counts.tolist() == [1, 2, 3, 0]


def test_above_its_capacity_an_expert_drops_its_last_tokens():
    chosen = torch.tensor([[0], [0], [1], [0]])
    sent = dispatch(chosen, ExpertRouting(2, 1), capacity=1.0)
    assert sent.counts.tolist() == [2, 2]
    assert sent.filled.tolist() == [True, True, True, False]
    assert sent.tokens.tolist()[:3] == [0, 1, 2]
    weights = torch.full((4, 1), 0.5)
    out = combine(torch.arange(8.0).view(4, 2), weights, sent, 4)
    assert out.tolist() == [[0.0, 0.5], [1.0, 1.5], [2.0, 2.5], [0.0, 0.0]]  # the fourth token is dropped


@pytest.mark.parametrize("capacity", [0.5, 1.0, 1.25, 8.0])
def test_a_block_with_a_capacity_loses_the_choices_beyond_it_and_no_others(capacity):
    one, x = block(SOFT), torch.randn(1, N, HIDDEN)
    chosen, weights = one.router(x[0])
    most = rows_of(N, SOFT, capacity) // 6
    kept, seen = torch.zeros_like(weights), [0] * 6
    for token in range(N):
        for slot, expert in enumerate(chosen[token].tolist()):
            kept[token, slot] = seen[expert] < most
            seen[expert] += 1
    limit_capacity(one, capacity)
    torch.testing.assert_close(one(x)[0], by_loop(one, x[0], chosen, weights * kept), rtol=1e-4, atol=1e-5)
    assert bool(kept.all()) == (capacity == 8.0)


@pytest.mark.parametrize("c", [SOFT, GROUPED], ids=["softmax", "grouped"])
@pytest.mark.parametrize("capacity", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("shared", [False, True])
def test_the_operators_of_a_block_are_what_runs(c, capacity, shared):
    """FLOPs to the last one; bytes within 0.01 %, or 0.4 % where a capacity drops rows by chance; what is saved within 1 %."""
    one = block(c, FeedForward(HIDDEN, FFN) if shared else None)
    limit_capacity(one, capacity)
    x, seen, kept = torch.randn(2, 64, HIDDEN, requires_grad=True), [], {}
    own = {p.untyped_storage()._cdata for p in [*one.parameters(), *one.buffers()]}

    def pack(t):
        if t.untyped_storage()._cdata not in own:
            kept[t.untyped_storage()._cdata] = t.untyped_storage()
        return t

    with OperatorCounter(seen.append):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            out = one(x)
        forward = len(seen)
        torch.autograd.grad(out, [x, *one.parameters()], x.detach())
    more = gated_operators("shared", 128, HIDDEN, FFN, kept=True) if shared else ()
    listed = sparse_operators("", Tokens(64, sequences=2, capacity=capacity), HIDDEN, FFN, c, "silu gate", more)
    for ran, of in ((seen[:forward], "forward"), (seen[forward:], "backward")):
        wanted = sum((getattr(o.eager, of) for o in listed), Amount())
        assert sum(o.flops for o in ran) == wanted.flops
        assert wanted.bytes() == pytest.approx(sum(o.bytes for o in ran), rel=0.004 if capacity else 1e-4)
    saved = sum((o.eager.saved for o in listed), Amount()).bytes()
    assert saved == pytest.approx(sum(s.nbytes() for s in kept.values()), rel=0.01)


def test_fused_kernels_of_dispatch_and_combine_move_each_token_and_each_row_once():
    """Forward: tokens to rows, or rows to tokens. Backward: the other way, and combine reads its rows for their weights too."""
    token, row = 128 * HIDDEN, 256 * HIDDEN  # elements of all tokens, and of all rows: two of a token
    listed = sparse_operators("", Tokens(64, sequences=2), HIDDEN, FFN, SOFT, "silu gate")
    fused = {o.name.split(".")[-1]: o.fused for o in listed}
    assert (fused["dispatch"].forward.whole, fused["dispatch"].backward.whole) == (token + row, row + token)
    assert fused["combine"].forward.whole == row + token + 256  # and a weight of each row
    assert fused["combine"].backward.whole == token + row + row + 2 * 256  # reads two, writes rows and gradients of weights


def test_the_same_bits_every_time():
    one, x = block(SOFT), torch.randn(1, N, HIDDEN)
    assert torch.equal(one(x), one(x))


def test_the_balancing_loss_is_one_where_all_is_even_and_more_where_it_is_not():
    even = torch.full((8, 4), 0.25)
    chosen = torch.arange(8)[:, None] % 4
    assert imbalance(even, chosen) == pytest.approx(1.0)
    skewed = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).expand(8, 4)
    assert imbalance(skewed, torch.zeros(8, 1, dtype=torch.long)) == pytest.approx(4 * 0.7)


def test_the_balancing_loss_of_every_router_gets_its_gradient_as_if_it_were_added():
    """Three times that of each, though nobody adds it; the gradients of experts do not know it."""
    c, x = ExpertRouting(6, 2, balance=0.02), torch.randn(N, HIDDEN, requires_grad=True)
    one = block(c)

    def gradients():
        found = {name: p.grad.clone() for name, p in one.named_parameters()} | {"x": x.grad.clone()}
        one.zero_grad()
        x.grad = None
        return found

    alone = one(x[None]).square().sum()
    alone.backward()
    without = gradients()
    scores = one.router.gate(x).softmax(-1)
    (one(x[None]).square().sum() + 3 * 0.02 * imbalance(scores, scores.topk(2)[1])).backward()
    wanted = gradients()
    set_balance(one, 3.0)
    out = one(x[None]).square().sum()
    assert out == alone
    out.backward()
    found = gradients()
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, wanted[name])
        assert torch.equal(gradient, without[name]) == name.startswith("experts")


def test_latent_attention_is_attention_of_keys_and_values_made_from_a_narrow_row():
    """DeepSeek-V2 (2024), equations 37 to 47, written out one head at a time."""
    c, tokens = LatentSizes(HIDDEN, 2, 12, 8, 4, 6, 5), 9
    one, x = LatentAttention(c, tokens), torch.randn(1, tokens, HIDDEN)
    narrow = one.kv_down(x)[0]
    queries = one.q_up(one.q_norm(one.q_down(x)))[0].view(tokens, 2, 10)
    made = one.kv_up(one.kv_norm(narrow[:, :8])).view(tokens, 2, 11)
    turn = torch.polar(torch.ones(tokens, 2), torch.outer(torch.arange(tokens), 10_000.0 ** (-torch.arange(0, 4, 2) / 4)))

    def turned(rows):
        return torch.view_as_real(torch.view_as_complex(rows.reshape(tokens, 2, 2)) * turn).flatten(1)

    heads = []
    for head in range(2):
        q = torch.cat((queries[:, head, :6], turned(queries[:, head, 6:])), 1)
        k = torch.cat((made[:, head, :6], turned(narrow[:, 8:])), 1)
        scores = (q @ k.T / 10**0.5).masked_fill(torch.ones(tokens, tokens).triu(1).bool(), float("-inf"))
        heads.append(scores.softmax(-1) @ made[:, head, 6:])
    torch.testing.assert_close(one(x)[0], one.wo(torch.cat(heads, 1)), rtol=1e-4, atol=1e-5)


def test_a_router_sees_the_tokens_that_it_is_said_to_and_by_itself_those_that_sequences_leave():
    """PyTorch's sees whole sequences where no token travels, Megatron-LM's its own share of them."""
    cut, model = Cut(2, sequence=True), MODELS.find("mixtral-tiny")
    routed = [operator for operator in model.part("sparse", Tokens(16)) if operator.routed]
    assert len(routed) > 3
    for operator in routed:
        assert operator.on(cut, (1, 1)).eager == operator.eager
        assert 2 * operator.on(cut).outputs.whole == operator.outputs.whole
