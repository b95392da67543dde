"""`emu estimate --sweep`: the step at each point."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from emu.errors import InputError, must_be
from emu.model.spell import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from launch.cli.options import print_json, stack_of
from launch.cli.sweep import Sweep, Words, at, points
from launch.data.devices import find_device
from launch.show.progress import tracked
from launch.show.text.swept import Swept, swept_csv
from launch.show.write import writing


def sweep_estimates(words: Words, topologies: Sequence[str], sweeps: Sequence[Sweep], request: EstimateRequest) -> list[Swept]:
    """The step at every point on every topology; a plan that fits neither model nor topology leaves its reason.

    Args:
        words: What is given beside: model, plan, stack, device, seq, global-batch.
        topologies: Where.
        sweeps: What is changed.
        request: Its algorithms, axes and scale_dp serve every point.

    Raises:
        InputError: a value that is none, wherever; or no point has a step.
    """
    where = [(point, at({**words, "topology": word}, point)) for point in points(sweeps) for word in topologies]
    built = {said["topology"]: build_topology(said["topology"]) for _, said in where}
    for _, said in where:
        find_device(said["device"], stack_of(said["stack"]).precision.activation)
        _whole(said)
    rows = []
    for point, said in tracked(where, f"estimating {len(where)} steps", len(where)):
        try:
            plan = parse_plan(said["plan"], **_whole(said))
            stack = stack_of(said["stack"])
            asked = EstimateRequest(said["model"], plan, stack, request.algorithms, request.axes, request.scale_dp)
            step = estimate(asked, built[said["topology"]], find_device(said["device"], stack.precision.activation))
            rows.append(Swept(said["topology"], point, "", step))
        except InputError as error:
            rows.append(Swept(said["topology"], point, str(error), None))
    if all(row.step is None for row in rows):
        raise InputError(f"--sweep: no point has a step; the first: {rows[0].refused}")
    return rows


def _whole(said: Words) -> dict[str, int]:
    """Tokens and sequences."""
    for name in ("seq", "global-batch"):
        if not said[name].isdecimal():
            raise must_be("--sweep", name, "whole numbers", said[name])
    return {"seq": int(said["seq"]), "global_batch": int(said["global-batch"])}


@dataclass(frozen=True, slots=True)
class Files:
    """Where the table and the picture of a sweep go."""

    csv: Path | None
    png: Path | None


def show_swept(rows: Sequence[Swept], title: str, files: Files, *, as_json: bool) -> None:
    """The table in its file, else on stdout, and the picture.

    Raises:
        InputError: a file cannot be written.
    """
    table = swept_csv(rows)
    if files.csv is not None:
        with writing("--csv", files.csv):
            files.csv.write_text(table, encoding="utf-8", newline="")
    if as_json:
        print_json(rows)
    elif files.csv is None:
        click.echo(table, nl=False)
    if files.png is not None:
        importlib.import_module("launch.show.chart.swept").draw_swept(rows, title, files.png)  # not above: it loads matplotlib
