"""`emu cost`: what networks cost and draw."""

import importlib
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from emu.errors import InputError, must_be
from emu.model.plan.spell import parse_plan
from emu.registry import parse_call
from emu.study.cost.book import Price
from emu.study.cost.cost import Cost, cost
from emu.study.cost.owned import Terms, owned
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.cli.options.common import (
    DEVICE_HELP,
    chosen_by,
    import_option,
    json_option,
    print_json,
    stack_of,
    stack_option,
    topology_option,
)
from launch.cli.options.outputs import print_text
from launch.data.devices import find_device
from launch.data.prices import BOOKS, find_book
from launch.show.progress import with_progress
from launch.show.text.cost_table import NetworkCost, cost_as_json, cost_report

if TYPE_CHECKING:
    from emu.study.training.estimate import Estimated

NPU_HELP = "dollars=30000,watts=700"
_NUMBER = r"\d+(\.\d+)?"


class Amount(click.ParamType[float]):
    """A number of 0 or more."""

    name = "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        if not re.fullmatch(_NUMBER, str(value)):
            raise must_be("cost", max(param.opts, key=len) if param else "value", "a number of 0 or more", str(value))
        return float(value)


class NPUPrice(click.ParamType[Price]):
    """What an NPU costs and draws."""

    name = NPU_HELP

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Price:
        """The price."""
        if isinstance(value, Price):
            return value
        given = parse_call(f"npu:{value}", "--npu")[2]
        fits = set(given) <= set(Price._fields) and all(re.fullmatch(_NUMBER, number) for number in given.values())
        if not given or not fits:
            raise must_be("cost", "--npu", f"{NPU_HELP}, or one of them, of 0 or more", str(value))
        return Price(*(float(given.get(name, 0)) for name in Price._fields))


@dataclass(frozen=True, slots=True)
class _Job:
    """What is trained: the options of `emu estimate`."""

    model: str
    plan: str
    global_batch: int
    seq: int
    device: str
    stack: str

    def on(self, topology: Topology) -> "Estimated":
        """Its step."""
        laid, stack = parse_plan(self.plan, global_batch=self.global_batch, seq=self.seq), stack_of(self.stack)
        of: Any = importlib.import_module("emu.study.training.estimate")  # not above: it takes as long as all else
        request = of.EstimateRequest(self.model, laid, stack, chosen_by((), stack))
        found: Estimated = of.estimate(request, topology, find_device(self.device, stack.precision.activation))
        return found


def _job(asked: dict[str, Any]) -> _Job | None:
    """None: none is asked for.

    Raises:
        InputError: some of what a step needs, and not all.
    """
    needed = ("model", "plan", "global_batch", "seq")
    missing = [name for name in needed if asked[name] is None]
    if len(missing) == len(needed):
        return None
    if missing:
        flags = [f"--{name.replace('_', '-')}" for name in missing]
        raise InputError(f"cost: a step needs --model, --plan, --global-batch and --seq; {', '.join(flags)} missing")
    return _Job(**{name: asked[name] for name in (*needed, "device", "stack")})


@click.command("cost")
@topology_option
@click.option("--prices", required=True, metavar="BOOK|FILE.toml", help=f"One price book: {', '.join(BOOKS)}, or your own.")
@click.option("--across", is_flag=True, help="Global bandwidth too: what half of the NPUs send to the other half.")
@click.option("--all-to-all", "exchange", is_flag=True, help="Too: what an NPU sends while all send to all others.")
@click.option("--years", type=Amount(), default=0.0, show_default=True, help="That the network runs: energy beside the price.")
@click.option("--kwh", type=Amount(), default=0.1, show_default=True, help="Dollars of a kilowatt-hour, of --years.")
@click.option("--npu", type=NPUPrice(), default=Price(0.0, 0.0), help="What an NPU costs and draws, in the TCO of --model.")
@click.option("--model", metavar="NAME|FILE", help="Performance over TCO: the step of `emu estimate`, as is --plan.")
@click.option("--plan", metavar="tp=8,sp,dp=8", help="Of --model.")
@click.option("--global-batch", type=int, help="Sequences in a step.")
@click.option("--seq", type=int, help="Tokens in a sequence.")
@click.option("--device", default="h100", show_default=True, help=DEVICE_HELP)
@stack_option
@import_option
@json_option
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
    """Tell what a network costs and draws: its bill of parts at the prices of one book, for each NPU and each GB/s.

    \b
    emu cost --topology infinitehbd:k=2 --topology nvl:72 --prices infinitehbd
    emu cost --topology fat-tree:radix=64,planes=36 --prices railx --across
    """
    book, terms, job = find_book(prices), Terms(npu, years, kwh), _job(asked)
    built = [build_topology(word) for word in topologies]
    of = partial(cost, book=book, across=across, exchange=exchange)
    paid = [_paid(of(topology), topology, terms, job) for topology in with_progress(built, "counting parts", len(built))]
    notes = [f"prices are those of {book.source or book.name}; books are never mixed"]
    if years:
        notes.append(f"energy is that of all parts at full power for {years:g} years, at {kwh:g} $ a kWh; cooling is left out")
    if exchange:
        notes.append("all-to-all: each NPU sends as much to each, by the routes of the topology, until a link is full")
    if job is not None:
        notes += _owned_notes(npu, job)
    if as_json:
        print_json(
            {"prices": book.name, "source": book.source, "rows": [cost_as_json(each) for each in paid], "assumptions": notes}
        )
    else:
        print_text(cost_report(paid, notes))


def _paid(of: Cost, topology: Topology, terms: Terms, job: _Job | None) -> NetworkCost:
    energy = of.energy_dollars(terms.years, terms.kwh_dollars) if terms.years else None
    return NetworkCost(of, energy) if job is None else NetworkCost(of, energy, owned(of, terms), job.on(topology))


def _owned_notes(npu: Price, job: _Job) -> list[str]:
    each = (
        f"an NPU costs {npu.dollars:g} $ and draws {npu.watts:g} W" if any(npu) else "no NPU is paid for; --npu gives its price"
    )
    return [
        f"TCO: the network, its NPUs and the energy of --years; {each}",
        f"tokens/s are those of {job.model} by {job.plan}; for each 1,000 $ of the job's share of the machine's TCO",
    ]
