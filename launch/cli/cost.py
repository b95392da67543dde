"""`emu cost`: what networks cost and draw."""

import re
from typing import Any

import click

from emu.errors import must_be
from emu.study.cost.cost import cost
from emu.topology.catalogue import build_topology
from launch.cli.options import import_option, json_option, print_json, topology_option
from launch.data.prices import BOOKS, find_book
from launch.show.progress import tracked
from launch.show.text.cost import Paid, cost_report, told


class Amount(click.ParamType[float]):
    """A number of 0 or more."""

    name = "NUMBER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        if not re.fullmatch(r"\d+(\.\d+)?", str(value)):
            raise must_be("cost", max(param.opts, key=len) if param else "value", "a number of 0 or more", str(value))
        return float(value)


@click.command("cost")
@topology_option
@click.option("--prices", required=True, metavar="BOOK|FILE.toml", help=f"One price book: {', '.join(BOOKS)}, or your own.")
@click.option("--across", is_flag=True, help="Global bandwidth too: what half of the NPUs send to the other half.")
@click.option("--years", type=Amount(), default=0.0, show_default=True, help="That the network runs: energy beside the price.")
@click.option("--kwh", type=Amount(), default=0.1, show_default=True, help="Dollars of a kilowatt-hour, of --years.")
@import_option
@json_option
def cost_command(topologies: tuple[str, ...], prices: str, across: bool, years: float, kwh: float, as_json: bool) -> None:
    """Tell what a network costs and draws: its bill of parts at the prices of one book, for each NPU and each GB/s.

    \b
    emu cost --topology infinitehbd:k=2 --topology nvl:72 --prices infinitehbd
    emu cost --topology fat-tree:radix=64,planes=36 --prices railx --across
    """
    book = find_book(prices)
    built = [build_topology(word) for word in topologies]
    found = [cost(topology, book, across=across) for topology in tracked(built, "counting parts", len(built))]
    paid = [Paid(each, each.energy_dollars(years, kwh) if years else None) for each in found]
    notes = [f"prices are those of {book.source or book.name}; books are never mixed"]
    if years:
        notes.append(f"energy is that of all parts at full power for {years:g} years, at {kwh:g} $ a kWh; cooling is left out")
    if as_json:
        print_json({"prices": book.name, "source": book.source, "rows": [told(each) for each in paid], "assumptions": notes})
    else:
        click.echo(cost_report(paid, notes))
