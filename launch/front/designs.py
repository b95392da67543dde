"""The question of `emu design`: which network, device and size is worth its money for a training job, and why?"""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.study.cost.price_book import PriceBook
from emu.study.design.design import find_design
from emu.study.design.design_table import DesignRow, DesignTable
from emu.study.design.point import DesignPoint, DesignRequest, PricedDevice
from emu.study.job_pool import LocalPool
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.search.result_cache import ResultCache
from launch.clusters import job_pool
from launch.data.presets import DEFAULT, find_book
from launch.front import inputs
from launch.front.argument_rules import needs
from launch.front.design_space import MachineAvailability, amount_of, availability_by, devices_of, space_of
from launch.front.inputs import DeviceLike, ModelLike, Topologies, Words, question
from launch.front.machine_faults import MACHINE_NPUS
from launch.front.network_costs import number_of
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import progress_bar
from launch.show.text.design_report import design_report


@dataclass(frozen=True, repr=False, eq=False)
class Design(Result[DesignRow], drawn_by="chart.design_chart:design_figure"):
    """The machines for a job that no other machine beats in speed, price, power and availability.

    The picture has tokens per second against dollars.
    """

    table: DesignTable
    notes: tuple[str, ...]  # what the figures rest on

    def text(self) -> str:
        """Return the front with its reasons, what other prices would choose, and what other points lack."""
        return design_report(self.table, self.notes)

    def as_json(self) -> object:
        """Return the table, and the notes as `assumptions`."""
        return {"design": self.table, "assumptions": self.notes}

    def _shown(self) -> tuple[Any, ...]:
        return (self.table,)

    def page(self) -> Page:
        """Return the report, with the picture and the tables."""
        made: Page = lazy("html.design_page:design_page")(self.table, self.notes)
        return made


@question
@needs(kwh="years")
def design(
    *,
    model: ModelLike,
    npus: int | str | Sequence[int],
    topology: Topologies,
    global_batch: int,
    seq: int,
    device: DeviceLike | Sequence[DeviceLike] = ("h100",),
    budget: float | str | None = None,
    power: float | str | None = None,
    prices: str | Path = DEFAULT,
    npu: Words = (),
    years: float | str = 0.0,
    kwh: float | str = 0.1,
    faults: str = "",
    plan: str = "",
    algorithm: Words = (),
    stack: str = "",
    cache: str | Path | None = None,
    workers: str = "local",
    ray_address: str | None = None,
) -> Design:
    """Find the machines for a training job that no other machine beats in speed, price, power and availability.

    Results are kept. An interrupted design goes on where it stopped when it is started again.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        npus: The NPUs of the job: one number or several, such as `32,64`.
        topology: The networks: names, whose settings may have several values such as `radix={8,16}`, files, or objects.
        global_batch: Sequences in a step, over all ranks.
        seq: Tokens in a sequence.
        device: The devices: names such as `h100,h800`, a .toml file, or a `Device`; or several.
        budget: Only machines of so many dollars, such as `10M$`, at the prices in the middle.
        power: Only machines of so much power, such as `2MW`.
        prices: The price book: its name, or a .toml file; `emu` is Emu's own, with a source for each price.
        npu: The price and the power of an NPU, such as `dollars=30000,watts=700`; of one device `h100:dollars=30000`.
        years: The years that the machine runs. They add the cost of energy.
        kwh: The dollars of a kilowatt-hour, for `years`.
        faults: Add availability, by settings of `emu faults`, such as `tp=8,mtbf=3y,mttr=4h`; empty: it is not asked for.
        plan: Search only plans with these words of `emu train --plan`, such as `tp=8,sp`; empty: all.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto` serves the step.
        stack: The software and its settings, such as `software=megatron`.
        cache: Keep results in this folder; None: in the user's cache.
        workers: The processes that price, bound and time points: of this machine (`local`), or of a Ray (`ray`).
        ray_address: The address of a running Ray; None: start one on this machine.

    Raises:
        InputError: an argument is impossible, no point has a step, or none is within the budget; the line says how to mend it.
    """
    software, book = inputs.stack_of(stack), find_book(str(prices))
    limits = amount_of(budget, "--budget", "$"), amount_of(power, "--power", "W")
    owned = devices_of(device, npu, number_of(years, "design", "--years"), number_of(kwh, "design", "--kwh"), software)
    available = availability_by(faults)
    points = space_of(topology, list(owned), npus)
    algorithms = inputs.algorithm_words(algorithm, software)
    plans = PlanRequest(inputs.model_word(model), points[0].npus, global_batch, seq, software, algorithms, plan, (), 1)
    request = DesignRequest(plans, book, owned, available, *limits)
    pool = job_pool("emu design", workers, ray_address, LocalPool(os.cpu_count() or 1))
    with closing(ResultCache(inputs.cache_folder(cache))) as kept:
        table = find_design(request, points, kept, pool=pool, progress=progress_bar)
    notes = [*_notes(book, owned, points, available), *([_SLOWER] if table.no_better else [])]
    return Design(table.rows, table, tuple(notes))


_BY_BANDWIDTH = "a price at a bandwidth is in proportion to the bandwidth that a topology has"

_SLOWER = "a machine whose links are nowhere faster than those of another one of its structure is taken to be nowhere faster"


def _notes(
    book: PriceBook, owned: dict[str, PricedDevice], points: Sequence[DesignPoint], available: MachineAvailability | None
) -> list[str]:
    """Return what the figures rest on, a sentence each."""
    terms = next(iter(owned.values())).terms
    bought = [f"{name} {of.npu.dollars:g} $ and {of.npu.watts:g} W" for name, (_, of) in owned.items() if any(of.npu)]
    energy = f"energy: all parts run at full power for {terms.years:g} years, at {terms.kwh_dollars:g} $ a kWh"
    states = f"availability: the share of {MACHINE_NPUS:,} NPUs or more that are in groups, as `emu faults` computes it"
    whole = "a job on a part of a machine takes its share of the price and the power"
    middle = "prices and power are halfway between the lowest and the highest of sources"
    return [
        f"all prices are from one book: {book.source or book.name}; {middle}",
        *([_BY_BANDWIDTH] if book.has_bandwidths else []),
        f"an NPU: {', '.join(bought)}" if bought else "NPUs cost nothing here; --npu gives their price",
        *([energy] if terms.years else []),
        whole,
        *([states, *available.faults(MACHINE_NPUS).notes] if available else []),
        "the step of a point is that of its best plan, as `emu plan` finds it; a point that its bound beats is not timed",
    ]
