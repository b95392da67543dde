"""The command `emu list`: the collectives, topologies, models and devices that there are."""

import click

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.model.model import ARCHITECTURES, MODELS
from emu.topology.catalogue import TOPOLOGIES
from emu.trace.device.dtypes import TF32
from emu.units import format_bandwidth, format_count, format_flops, format_size
from launch.cli.options.common import import_option, json_option, print_result
from launch.data.devices import DEVICES
from launch.show.text.table import table


@click.group("list")
def list_command() -> None:
    """List the collectives, topologies, models or devices that commands take.

    \b
    emu list collectives
    emu list topologies --json
    """


def _show(rows: list[dict[str, object]], as_json: bool) -> None:
    """Print rows as JSON or as a table."""
    print_result(rows, lambda: table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]), as_json=as_json)


@list_command.command("collectives")
@import_option
@json_option
def _collectives(as_json: bool) -> None:
    """List the algorithms of each operation.

    A star marks the default. `--json` adds their families.
    """
    found = sorted((a for _, a in ALGORITHMS), key=lambda a: (a.operation, a.name))
    fields = ("operation", "algorithm", "default", "summary", "family")
    rows: list[dict[str, object]]
    if as_json:
        rows = [dict(zip(fields, (a.operation, a.name, a.default, a.summary, _family(a)), strict=True)) for a in found]
    else:
        rows = [{"operation": a.operation, "algorithm": a.name + " *" * a.default, "": a.summary} for a in found]
    _show(rows, as_json)


def _family(found: Algorithm) -> str:
    """Return the first line of the docstring of the file that defines an algorithm."""
    said = getattr(found.build, "__globals__", {}).get("__doc__") or ""
    return str(said).strip().partition("\n")[0]


@list_command.command("topologies")
@import_option
@json_option
def _topologies(as_json: bool) -> None:
    """List topologies.

    Each has an example that builds one. `--json` adds sources and settings.
    """
    rows: list[dict[str, object]] = [{"name": name, "example": b.example, "summary": b.summary} for name, b in TOPOLOGIES]
    if as_json:
        for row, (_, blueprint) in zip(rows, TOPOLOGIES, strict=True):
            row |= {"source": blueprint.source, "settings": dict(blueprint.settings)}
    _show(rows, as_json)


@list_command.command("models")
@import_option
@json_option
def _models(as_json: bool) -> None:
    """List models and their sizes.

    `active` counts the parameters that one token uses. `--json` adds sources.
    """
    architectures = {name: one.name for _, one in ARCHITECTURES for name in one.configs}
    rows: list[dict[str, object]] = []
    for name, m in MODELS:
        total, active = m.parameters(), m.active_parameters()
        row: dict[str, object] = (
            {"name": name, "parameters": total, "active_parameters": active}
            if as_json
            else {"name": name, "parameters": format_count(total), "active": format_count(active)}
        )
        rows.append(row | {size: getattr(m, size) for size in ("layers", "hidden", "heads", "experts", "vocab", "max_seq")})
        if as_json:
            rows[-1] |= {"top_k": m.top_k, "architecture": architectures.get(name, ""), "source": m.source}
    _show(rows, as_json)


@list_command.command("devices")
@import_option
@json_option
def _devices(as_json: bool) -> None:
    """List devices, and the sources of their figures."""
    rows: list[dict[str, object]] = [
        {
            "name": name,
            **{f"{n}_FLOPs": d.peak(n) if as_json else format_flops(d.peak(n)) + "/s" for n in ("bfloat16", "float32", TF32)},
            "hbm_Bps": d.hbm_Bps if as_json else format_bandwidth(d.hbm_Bps),
            "memory_bytes": d.memory_bytes if as_json else format_size(d.memory_bytes),
            "cores": d.cores,
            "fitted_on": d.fitted_on or ("" if as_json else "unfitted"),
            "source": d.source + (f"; assumed: {d.assumed}" if d.assumed else ""),
        }
        for name, d in sorted(DEVICES.items())
    ]
    _show(rows, as_json)
