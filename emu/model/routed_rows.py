"""The rows of tokens that travel to experts: spread evenly, or as a run had them.

N ranks of one stage, EP of them share the experts of a layer, ETP an expert.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.model.model import Model
from emu.model.operator import Tokens
from emu.model.plan.plan import Plan
from emu.model.plan.stage_layers import stage_layers

Splits = I64  # [L, P, N, EP] in layer l with experts and pass p, rows that rank n of a stage gives to each of its EP


class RoutedRows(NamedTuple):
    """The token rows that one rank sends to experts and receives for its own experts, in one pass of one layer.

    `given` and `taken` are the rows to and from each rank of the experts' group.
    """

    given: tuple[int, ...]  # [EP] to each rank of the experts
    taken: tuple[int, ...]  # [EP] from each
    shares: tuple[int, ...]  # [ETP] of all ranks that share its experts, those that each took
    most: int  # rows of the largest buffer that a rank of its experts gives or takes

    @property
    def here(self) -> int:
        """The number of token rows that come to this rank's experts from all ranks, all experts together."""
        return sum(self.shares)

    @property
    def share(self) -> tuple[int, int]:
        """The number of rows that the rank's experts process, and the number of rows that the rank sends."""
        return self.here, sum(self.given)


RoutedOf = Callable[[int, int], RoutedRows | None]  # of a layer of the model and a pass; None: no rows travel there


def classes(plan: Plan, model: Model, place: int, splits: Splits | None) -> list[tuple[I64, RoutedOf]]:
    """Return sets of ranks at one place of a pipeline that exchange equal numbers of token rows, with these numbers.

    Ranks are numbers in their stage.

    Args:
        plan: The plan.
        model: The model.
        place: The place in the pipeline.
        splits: The rows as a run had them; None: spread evenly.

    Raises:
        InputError: The splits have another shape, or rows cannot be spread evenly.
    """
    if splits is None or not plan.exchanges:
        return [(np.arange(plan.stage_ranks), rows_by_kind(even, plan, model))]
    travel = [layer for layer, kind in enumerate(model.kinds) if own_rows(plan, model, kind)]
    shape = (len(travel), plan.passes, plan.stage_ranks, plan.ep)
    if splits.shape != shape:
        raise must_be("generate", "routing", f"splits of the shape {shape}: layers, passes, ranks, ep", splits.shape)
    sizes = stage_layers(plan, model)
    here = {n for stage in plan.stages_of(place * plan.stage_ranks) for n in range(sum(sizes[:stage]), sum(sizes[: stage + 1]))}
    of = {(n, p): recorded(plan, splits[i, p]) for i, n in enumerate(travel) if n in here for p in range(plan.passes)}
    same: dict[tuple[RoutedRows, ...], list[int]] = {}
    for rank in range(plan.stage_ranks):
        same.setdefault(tuple(rows[rank] for rows in of.values()), []).append(rank)
    return [(np.array(ranks), partial(_rows_of_rank, of, ranks[0])) for ranks in same.values()]


def rows_by_kind(rows: Callable[[Plan, Model, str], RoutedRows | None], plan: Plan, model: Model) -> RoutedOf:
    """Return a function that gives the token rows of a layer and pass, if all layers of a kind have equal rows.

    Args:
        rows: The function that gives the rows of a kind of layers.
        plan: The plan.
        model: The model.
    """
    by_kind = {kind: rows(plan, model, kind) for kind in set(model.kinds)}
    return lambda layer, _: by_kind[model.kinds[layer]]


def _rows_of_rank(of: Mapping[tuple[int, int], list[RoutedRows]], rank: int, layer: int, pass_: int) -> RoutedRows | None:
    return of[layer, pass_][rank] if (layer, pass_) in of else None


def even(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows of a layer if all ranks of ep get equally many; None if no rows are sent.

    Raises:
        InputError: The rows that a rank gives are no multiple of ep.
    """
    rows = own_rows(plan, model, kind)
    if rows % plan.ep:
        mend = "another microbatch, seq or ep divides them, or a capacity fills them up"
        raise must_be("generate", "ep", f"a divisor of the {rows} rows that a rank gives in a pass", plan.ep, mend)
    return about_even(plan, model, kind)


def about_even(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows spread as evenly as possible: some ranks of ep get one row more; None if none are sent."""
    rows = own_rows(plan, model, kind)
    if not rows:
        return None
    less, more = divmod(rows, plan.ep)
    each = (less + 1,) * more + (less,) * (plan.ep - more)
    return RoutedRows(each, each, (rows,) * plan.expert_tp, rows)


def fullest(plan: Plan, model: Model, kind: str) -> RoutedRows | None:
    """Return the routed rows of the rank with the fullest expert; None if rows are spread evenly or not sent.

    One expert gets the most rows, all others 1 - `imbalance` as many.
    """
    rows, others = own_rows(plan, model, kind), 1 - plan.imbalance
    if not rows or not plan.imbalance:
        return None
    experts = model.experts // plan.ep
    most = round(rows * (1 + (experts - 1) * others) / (1 + (model.experts - 1) * others))
    rest, more = divmod(rows - most, max(1, plan.ep - 1))
    given = (most, *(rest + (i < more) for i in range(plan.ep - 1)))
    return RoutedRows(given, (most,) * plan.ep, (plan.ep * most,) * plan.expert_tp, max(rows, plan.ep * most))


def own_rows(plan: Plan, model: Model, kind: str) -> int:
    """Return the number of rows that a rank sends in a pass of a layer of a kind; 0 if none are sent."""
    if not plan.exchanges:
        return 0
    tokens = Tokens(plan.rank_seq // plan.tp, sequences=plan.pass_batch, capacity=plan.capacity)
    return max((o.shape[0] for o in model.part(kind, tokens) if o.experts and o.shape), default=0)


def recorded(plan: Plan, given: I64) -> list[RoutedRows]:
    """Return the routed rows of each rank of a stage, from the recorded numbers of rows that each rank sends.

    Args:
        plan: The plan.
        given: [N, EP] the number of rows that each rank of the stage sends to each member of its ep group.
    """
    found: list[RoutedRows | None] = [None] * len(given)
    sizes = {axis: plan.sizes[axis] for axis in ("etp", "ep")}
    took = np.zeros_like(given)
    largest = np.zeros(len(given), np.int64)
    places = np.arange(len(given)).reshape(-1, sizes["ep"], sizes["etp"])
    for members in np.moveaxis(places, 1, -1).reshape(-1, sizes["ep"]):
        took[members] = given[members].T
        largest[members] = max(given[members].sum(1).max(), took[members].sum(1).max())
    for members in places.reshape(-1, sizes["etp"]):
        shares = tuple(took[members].sum(1).tolist())
        for rank in members.tolist():
            found[rank] = RoutedRows(tuple(given[rank].tolist()), tuple(took[rank].tolist()), shares, int(largest[rank]))
    return [each for each in found if each is not None]
