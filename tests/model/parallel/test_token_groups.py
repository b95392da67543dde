"""Which tokens are looked at together: those of a rank and a pass."""

import numpy as np
import pytest

from emu.model.parallel.parallel_model import token_groups
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell

PLANS = [
    Plan(dp=2, global_batch=4, seq=8),
    Plan(cp=2, dp=2, global_batch=8, seq=16, microbatch=2),
    Plan(tp=2, cp=2, ep=2, global_batch=4, seq=16, microbatch=1),
    Plan(tp=2, ep=2, etp=1, dp=2, pp=2, global_batch=8, seq=8),
    Plan(tp=4, global_batch=2, seq=8),
]


@pytest.mark.parametrize("plan", PLANS, ids=spell)
def test_groups_are_the_tokens_of_each_rank_and_pass(plan):
    found = {tuple(group) for group in token_groups(plan).tolist()}
    batch = np.arange(plan.tokens).reshape(plan.global_batch, plan.seq)
    wanted = set()
    for rank in range(plan.world):
        at = plan.coordinates(rank)
        own = batch[at["dp"] * plan.rank_batch :][: plan.rank_batch][:, plan.positions(rank)]
        for sequences in np.split(own, plan.passes):
            parts = np.split(sequences, plan.tp, axis=1) if plan.exchanges else [sequences] * plan.tp
            wanted.add(tuple(parts[at["tp"]].ravel().tolist()))
    assert found == wanted
    assert sorted(np.concatenate(list(found))) == list(range(plan.tokens))
