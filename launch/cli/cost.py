"""The command `emu cost`: the price and the power of networks."""

import importlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from emu.errors import InputError, must_be
from emu.model.plan.plan_text import parse_plan
from emu.registry import parse_call
from emu.study.cost.cost import Cost, OwnershipTerms, cost, ownership_cost
from emu.study.cost.price_book import Price
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.cli.options import common
from launch.data.devices import find_device
from launch.data.prices import BOOKS, DEFAULT, find_book
from launch.show.progress import with_progress
from launch.show.text.cost_table import NetworkCost, cost_as_json, cost_report, source_notes

if TYPE_CHECKING:
    from emu.study.training.estimate import StepEstimate

_NPU = "dollars=30000,watts=700"
_NUMBER = r"\d+(\.\d+)?"


def _amount(text: str, name: str) -> float:
    """Return a number of 0 or more.

    Args:
        text: The number.
        name: The option that gives it.

    Raises:
        InputError: the text is no such number.
    """
    if not re.fullmatch(_NUMBER, text):
        raise must_be("cost", name, "a number of 0 or more", text)
    return float(text)


def _npu_price(text: str, name: str) -> Price:
    """Return the price and the power of an NPU.

    Raises:
        InputError: the text is not as `dollars=30000,watts=700`.
    """
    given = parse_call(f"npu:{text}", name)[2]
    fits = set(given) <= set(Price._fields) and all(re.fullmatch(_NUMBER, number) for number in given.values())
    if not given or not fits:
        raise must_be("cost", name, f"{_NPU}, or one of them, of 0 or more", text)
    return Price(*(float(given.get(field, 0)) for field in Price._fields))


NPU_PRICE = common.TextType(_NPU, _npu_price)
_AMOUNT = common.TextType("NUMBER", _amount)


def _step_of(asked: dict[str, Any]) -> "Callable[[Topology], StepEstimate] | None":
    """Return the function that estimates the training step of the options on a topology; None where they give none.

    Raises:
        InputError: some of the options that a step needs are missing.
    """
    needed = ("model", "plan", "global_batch", "seq")
    missing = [name for name in needed if asked[name] is None]
    if len(missing) == len(needed):
        return None
    if missing:
        flags = [f"--{name.replace('_', '-')}" for name in missing]
        raise InputError(f"cost: --model, --plan, --global-batch and --seq go together; add {', '.join(flags)}")
    of: Any = importlib.import_module("emu.study.training.estimate")  # not above: it takes long to load
    laid, stack = (
        parse_plan(asked["plan"], global_batch=asked["global_batch"], seq=asked["seq"]),
        common.stack_of(asked["stack"]),
    )
    request, device = of.EstimateRequest(asked["model"], laid, stack, common.algorithm_choice((), stack)), asked["device"]
    return lambda topology: of.estimate(request, topology, find_device(device, stack.precision.activation))


def _paid(of: Cost, terms: OwnershipTerms, step: "StepEstimate | None") -> NetworkCost:
    """Return the cost of a network with its energy and its step, at the lowest and at the highest prices."""
    energy = of.energy_dollars(terms.years, terms.kwh_dollars) if terms.years else None
    owned = ownership_cost(of, terms) if step else None
    return NetworkCost(of, energy, owned, step, _paid(of.high, terms, step) if of.high else None)


@click.command("cost")
@common.topology_option
@common.default_option(
    "--prices",
    default=DEFAULT,
    metavar="BOOK|FILE.toml",
    help=f"The price book: {', '.join(BOOKS)}, or a file of your own.",
)
@click.option("--across", is_flag=True, help="Add the global bandwidth: what half of the NPUs send to the other half.")
@click.option(
    "--all-to-all",
    "exchange",
    is_flag=True,
    help="Add the all-to-all bandwidth: what an NPU sends while all NPUs send to all others.",
)
@common.default_option(
    "--years", type=_AMOUNT, default=0.0, help="The years that the network runs. They add the cost of energy."
)
@common.default_option("--kwh", type=_AMOUNT, default=0.1, help="The dollars of a kilowatt-hour, for --years.")
@click.option(
    "--npu", type=NPU_PRICE, default="dollars=0,watts=0", help="The price and the power of an NPU, for the TCO of --model."
)
@click.option(
    "--model",
    metavar="NAME|FILE",
    help="Add tokens per second for each dollar of TCO, by an estimate of this model. It needs --plan.",
)
@click.option("--plan", metavar="tp=8,sp,dp=8", help="The plan of --model, as in `emu train`.")
@click.option("--global-batch", type=int, help="Sequences in a step.")
@click.option("--seq", type=int, help="Tokens in a sequence.")
@common.device_option
@common.stack_option
@common.import_option
@common.json_option
def cost_command(
    topologies: tuple[str, ...],
    prices: str,
    across: bool,
    exchange: bool,
    years: float,
    kwh: float,
    npu: Price,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compute the price and the power of a network from its parts, for each NPU and each GB/s.

    \b
    emu cost --topology ub-mesh:pod --topology hpn:pod --topology tpuv4
    emu cost --topology infinitehbd:k=2 --topology nvl:72 --prices infinitehbd
    emu cost --topology fat-tree:radix=64,planes=36 --prices railx --across
    """
    book, terms, step = find_book(prices), OwnershipTerms(npu, years, kwh), _step_of(asked)
    built = [build_topology(word) for word in topologies]
    paid = []
    for topology in with_progress(built, "counting parts", len(built)):
        of = cost(topology, book, across=across, exchange=exchange)
        paid.append(_paid(of, terms, step(topology) if step else None))
    notes = [f"all prices are from one book: {book.source or book.name}", *source_notes(paid)]
    if any(each.high for each in paid):
        notes.append("low to high: at the lowest and at the highest price of each part, where sources differ")
    if years:
        notes.append(f"energy: all parts run at full power for {years:g} years, at {kwh:g} $ a kWh; cooling is not counted")
    if exchange:
        notes.append(
            "all-to-all: each NPU sends equal amounts to all others, by the routes of the topology, until one link is full"
        )
    if step is not None:
        bought = f"an NPU costs {npu.dollars:g} $ and draws {npu.watts:g} W"
        each = bought if any(npu) else "NPUs cost nothing here; --npu gives their price"
        job = f"{asked['model']} by {asked['plan']}"
        notes += [
            f"TCO is the price of the network and its NPUs, and the energy of --years; {each}",
            f"tokens/s are of {job}; they are divided by the job's share of the TCO, in 1,000 $",
        ]
    rows = [cost_as_json(each) for each in paid]
    told = {"prices": book.name, "source": book.source, "rows": rows, "assumptions": notes}
    common.print_result(told, lambda: cost_report(paid, notes), as_json=as_json)
