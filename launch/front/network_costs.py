"""The question of `emu cost`: the price and the power of the network of a machine."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.errors import InputError, must_be
from emu.model.plan.plan_text import parse_plan
from emu.registry import parse_call
from emu.study.cost.network_cost import Cost, OwnershipTerms, ownership_cost
from emu.study.cost.network_cost import cost as network_cost
from emu.study.cost.price_book import Price, UnpricedError
from emu.topology.topology import Topology
from launch.data.presets import DEFAULT, find_book
from launch.front import inputs
from launch.front.argument_rules import needs
from launch.front.inputs import DeviceLike, ModelLike, Topologies, question
from launch.front.result import Result
from launch.show.progress import with_progress
from launch.show.row_file import row_known
from launch.show.text.machine_table import NetworkCost, cost_as_json, cost_report, source_notes

if TYPE_CHECKING:  # they take long to load
    from emu.study.training.estimate import StepEstimate

NPU_EXAMPLE = "dollars=30000,watts=700"
_RANGES = "low to high: at the lowest and at the highest price of each part, where sources differ"
_NUMBER = r"[0-9]+(\.[0-9]+)?"


@dataclass(frozen=True, repr=False, eq=False)
class NetworkCosts(Result[NetworkCost]):
    """The price and the power of the network of each topology, with the price book and notes on the figures.

    Networks of which the book lacks a price have no row: `unpriced` says which price it lacks.
    """

    prices: str  # the name of the price book
    source: str  # where its prices are from
    notes: tuple[str, ...]  # what the figures rest on
    unpriced: Mapping[str, str] = field(default_factory=dict)  # by topology, the line that says which price the book lacks

    @property
    def failure(self) -> str | None:
        """The line on the networks that have no row; None: all have one."""
        if not self.unpriced:
            return None
        whole = f"cost: {len(self.unpriced)} of {len(self.unpriced) + len(self.rows)} networks are not priced"
        return f"{whole}: {'; '.join(self.unpriced.values())}"

    def text(self) -> str:
        """Return a table with a line for each network, then the parts of each and the notes."""
        return cost_report(self.rows, self.notes)

    def as_json(self) -> object:
        """Return the rows, the name and the source of the price book, and the notes as `assumptions`."""
        found = {"prices": self.prices, "source": self.source, "rows": self.records(), "assumptions": self.notes}
        return found | ({"unpriced": self.unpriced} if self.unpriced else {})

    def records(self) -> Sequence[object]:
        """Return the rows, each with the price and the power of its parts."""
        return [cost_as_json(row) for row in self.rows]


def npu_price(text: str, command: str) -> Price:
    """Return the price and the power of an NPU, as `--npu` of a command gives them.

    Raises:
        InputError: the text is not as `dollars=30000,watts=700`.
    """
    given = parse_call(f"npu:{text}", "--npu")[2]
    fits = set(given) <= set(Price._fields) and all(re.fullmatch(_NUMBER, number) for number in given.values())
    if not given or not fits:
        raise must_be(command, "--npu", f"{NPU_EXAMPLE}, or one of them, of 0 or more", text)
    return Price(*(float(given.get(field, 0)) for field in Price._fields))


@question
@needs(kwh="years", npu="model", device="model", stack="model")
def cost(
    *,
    topology: Topologies,
    prices: str | Path = DEFAULT,
    across: bool = False,
    all_to_all: bool = False,
    years: float | str = 0.0,
    kwh: float | str = 0.1,
    npu: str = "dollars=0,watts=0",
    model: ModelLike | None = None,
    plan: str | None = None,
    global_batch: int | None = None,
    seq: int | None = None,
    device: DeviceLike = "h100",
    stack: str = "",
) -> NetworkCosts:
    """Compute the price and the power of a network from its parts, for each NPU and each GB/s.

    Args:
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        prices: The price book: its name, or a .toml file; `emu` is Emu's own, with a source for each price.
        across: Add the global bandwidth: what half of the NPUs send to the other half.
        all_to_all: Add the all-to-all bandwidth: what an NPU sends while all NPUs send to all others.
        years: The years that the network runs. They add the cost of energy.
        kwh: The dollars of a kilowatt-hour, for `years`.
        npu: The price and the power of an NPU, for the TCO of `model`, such as `dollars=30000,watts=700`.
        model: Add tokens per second for each dollar of TCO, by an estimate of this model. It needs `plan`.
        plan: The plan of `model`, as in `emu train`, such as `tp=8,sp,dp=8`.
        global_batch: Sequences in a step.
        seq: Tokens in a sequence.
        device: The device: a name, a .toml file, or a `Device`.
        stack: The software and its settings, such as `software=megatron`.

    Returns:
        The cost of each network. Where the book lacks a price of some, `unpriced` says which, and the answer has the others.

    Raises:
        InputError: an argument is impossible, or the book can price no network; the line says why, and how to mend it.
    """
    step = _step_of({"model": model, "plan": plan, "global_batch": global_batch, "seq": seq}, device, stack)
    book, bought = find_book(str(prices)), npu_price(npu, "cost")
    terms = OwnershipTerms(bought, number_of(years, "cost", "--years"), number_of(kwh, "cost", "--kwh"))
    built, paid, unpriced = inputs.topologies_of(topology), list[NetworkCost](), dict[str, UnpricedError]()
    for each in with_progress(built, "counting parts", len(built)):
        try:
            of = network_cost(each, book, across=across, exchange=all_to_all)
        except UnpricedError as error:
            unpriced[each.name] = error
            continue
        paid.append(_paid(of, terms, step(each) if step else None))
        row_known(cost_as_json(paid[-1]))
    if not paid:
        raise next(iter(unpriced.values()))
    notes = [*_cost_notes(book.source or book.name, paid, terms, exchange=all_to_all)]
    if step is not None:
        notes += _ownership_notes(bought, f"{inputs.model_word(model or '')} by {plan}")
    told = {name: str(error) for name, error in unpriced.items()}
    return NetworkCosts(tuple(paid), book.name, book.source, tuple(notes), told)


def _paid(of: Cost, terms: OwnershipTerms, step: "StepEstimate | None") -> NetworkCost:
    """Return the cost of a network, with its energy and the step on it, at the lowest and at the highest prices.

    Args:
        of: The cost of the network.
        terms: What ownership costs: years, energy, and the price of an NPU.
        step: The step on the network; None: a step was not asked for.
    """
    energy = of.energy_dollars(terms.years, terms.kwh_dollars) if terms.years else None
    owned = ownership_cost(of, terms) if step else None
    return NetworkCost(of, energy, owned, step, _paid(of.high, terms, step) if of.high else None)


def _cost_notes(book: str, paid: Sequence[NetworkCost], terms: OwnershipTerms, *, exchange: bool) -> Sequence[str]:
    """Return the assumptions of prices, energy and, with `exchange`, the all-to-all bandwidth, a sentence each."""
    years, kwh = terms.years, terms.kwh_dollars
    energy = f"energy: all parts run at full power for {years:g} years, at {kwh:g} $ a kWh; cooling is not counted"
    shared = "each NPU sends equal amounts to all others, by the routes of the topology, until one link is full"
    turns = "an optical switch that turns lights its links one after another; the time of its turns is not counted"
    return [
        f"all prices are from one book: {book}",
        *source_notes(paid),
        *([_RANGES] if any(each.high for each in paid) else []),
        *([energy] if terms.years else []),
        *([f"all-to-all: {shared}; {turns}"] if exchange else []),
    ]


def _ownership_notes(bought: Price, job: str) -> Sequence[str]:
    """Return what the TCO and tokens per second rest on, a sentence each."""
    priced = f"an NPU costs {bought.dollars:g} $ and draws {bought.watts:g} W"
    each = priced if any(bought) else "NPUs cost nothing here; --npu gives their price"
    return [
        f"TCO is the price of the network and its NPUs, and the energy of --years; {each}",
        f"tokens/s are of {job}; they are divided by the job's share of the TCO, in 1,000 $",
    ]


def number_of(given: float | str, command: str, name: str) -> float:
    """Return a number of 0 or more.

    Args:
        given: The number.
        command: The command.
        name: The option that gives it.

    Raises:
        InputError: it is no such number.
    """
    if (isinstance(given, str) and not re.fullmatch(_NUMBER, given)) or (not isinstance(given, str) and not 0 <= given < inf):
        raise must_be(command, name, "a number of 0 or more", given)
    return float(given)


def _step_of(needed: dict[str, Any], device: DeviceLike, words: str) -> "Callable[[Topology], StepEstimate] | None":
    """Return a function that estimates a training step on a topology; None if no model and no plan are given.

    Args:
        needed: The arguments of the step by name: model, plan, global batch and sequence length.
        device: The device.
        words: The words of `stack`.

    Raises:
        InputError: an argument that a step needs is missing.
    """
    missing = [name for name, given in needed.items() if given is None]
    if len(missing) == len(needed):
        return None
    if missing:
        flags = [f"--{name.replace('_', '-')}" for name in missing]
        raise InputError(f"cost: --model, --plan, --global-batch and --seq go together; add {', '.join(flags)}")
    of: Any = importlib.import_module("emu.study.training.estimate")  # not above: it takes long to load
    laid, stack = parse_plan(needed["plan"], global_batch=needed["global_batch"], seq=needed["seq"]), inputs.stack_of(words)
    request = of.EstimateRequest(inputs.model_word(needed["model"]), laid, stack, inputs.algorithm_words((), stack))
    found = inputs.device_of(device, stack.precision.activation)
    return lambda topology: of.estimate(request, topology, found)
