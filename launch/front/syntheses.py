"""The question of `emu synthesize`: what is the fastest schedule of a collective that can be made for a topology?"""

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from emu.collective.msccl.parse import COLLS
from emu.collective.msccl.xml_format import to_xml
from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.errors import either, must_be
from emu.files import write_file
from emu.study.synthesis_row import SynthesisRow, synthesis_row
from emu.study.synthesize import SynthesisRequest
from emu.synthesis.variants import SYNTHESIS_OPERATIONS
from emu.units import TICKS_PER_S, format_size, parse_size, parse_time
from launch.front.inputs import Topologies, question, topologies_of
from launch.front.result import Result
from launch.show.progress import finished_items, itself, with_progress
from launch.show.text.synthesis_table import synthesis_report

_COLUMNS = ("round_end", "src", "dst", "slot", "reduce", "channel")


@dataclass(frozen=True, repr=False, eq=False)
class Synthesis(Result[SynthesisRow], drawn_by="chart.algorithm_chart:round_figure", files=(".xml", ".npz")):
    """A synthesised schedule on each topology, beside bounds and the fastest algorithm of the catalogue.

    The picture has the rounds of the first schedule as arrows; with many ranks or rounds, the slots that each sends to each.
    """

    schedules: tuple[Schedule, ...]  # of each row; they are proved
    operations: tuple[Operation, ...]

    def text(self) -> str:
        """Return the table of all rows, with what they rest on."""
        return synthesis_report(self.rows)

    def _shown(self) -> tuple[Any, ...]:
        row = self.rows[0]
        size = format_size(row.size_bytes)
        return self.schedules[0].expand(), f"{row.operation} of {size} synthesised for {row.topology}: {row.rounds} rounds"

    def save_xml(self, path: Path) -> None:
        """Write the first schedule as MSCCL XML, to run it on GPUs."""
        name = f"synthesized-{self.rows[0].operation}-{self.rows[0].ranks}"
        write_file("--xml", path, to_xml(self.schedules[0], self.operations[0], name).encode())

    def save_npz(self, path: Path) -> None:
        """Write the columns of the first schedule, with every row stored, for numpy."""
        full, held = self.schedules[0].expand(), io.BytesIO()
        columns = {name: getattr(full, name) for name in _COLUMNS} | {"dst_slot": full.written_slot}
        np.savez_compressed(held, n_ranks=full.n_ranks, n_slots=full.n_slots, operation=self.rows[0].operation, **columns)
        write_file("--npz", path, held.getvalue())


@question
def synthesize(
    operation: str,
    *,
    topology: Topologies,
    ranks: int | None = None,
    size: int | str = "64MiB",
    dtype: str = "float32",
    root: int = 0,
    time: float | str | None = None,
) -> Synthesis:
    """Make the fastest schedule of a collective that is found for a topology, prove it, and time it.

    Args:
        operation: The operation: all_gather, reduce_scatter, all_reduce, broadcast, reduce or all_to_all.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        ranks: The number of ranks; None: all NPUs of the topology.
        size: The bytes of one rank's buffer (of all ranks for all_gather and reduce_scatter), as a number or such as `64MiB`.
        dtype: The data type of the elements.
        root: The root rank, for an operation that has one.
        time: The time that the synthesis may take, in seconds or such as `60s`; None: as long as its fixed work takes.

    Raises:
        InputError: an argument is impossible; the line says which, and how to mend it.
    """
    limit_s = None if time is None else parse_time(time, "--time") / TICKS_PER_S
    request = SynthesisRequest(operation, parse_size(size, "--size"), ranks, root, dtype, limit_s)
    built = topologies_of(topology)
    made = (synthesis_row(each, request) for each in built)
    done = finished_items(made, lambda finished: synthesis_report(tuple(row for row, _ in finished)), len(built))
    found = list(with_progress(done, f"synthesizing {operation}", len(built), row=lambda pair: itself(pair[0])))
    return Synthesis(
        tuple(row for row, _ in found),
        tuple(each.schedule for _, each in found),
        tuple(each.operation for _, each in found),
    )


def check_written(operation: str, topologies: int, *, as_xml: bool) -> None:
    """Check that one schedule is made where one is written or drawn, and that MSCCL XML can express its operation.

    Raises:
        InputError: Several topologies are given, or the operation has a root.
    """
    if topologies != 1:
        raise must_be("synthesize", "--topology", "given once where a schedule is written or drawn", topologies)
    if as_xml and operation not in COLLS:
        what = f"given for {either(each for each in SYNTHESIS_OPERATIONS if each in COLLS)}"
        raise must_be("synthesize", "--xml", what, operation, "MSCCL XML has no root")
