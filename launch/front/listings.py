"""The question of `emu list`: which collectives, topologies, models and devices are there?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.model.model import ARCHITECTURES, MODELS
from emu.topology.catalogue import TOPOLOGIES
from emu.trace.timed_dtype import TF32
from emu.units import format_bandwidth, format_count, format_flops, format_size
from launch.data.devices import DEVICES
from launch.front.result import Result
from launch.show.text.table import table

_SIZES = ("layers", "hidden", "heads", "experts", "vocab", "max_seq")


@dataclass(frozen=True, repr=False, eq=False)
class Listing(Result[Mapping[str, Any]]):
    """The rows of one `emu list`, such as all topologies; a row has all that `--json` prints."""

    shown: tuple[Mapping[str, str], ...]  # the columns that a person reads, as text
    note: str = ""  # the line below the table that explains its marks; "": it has none

    def text(self) -> str:
        """Return the table, and the line that explains its marks."""
        return table(list(self.shown[0]), [list(row.values()) for row in self.shown]) + f"\n\n{self.note}" * bool(self.note)


def list_collectives() -> Listing:
    """Return the algorithms of each operation, with their families; `default` marks the default of the operation."""
    found = sorted((a for _, a in ALGORITHMS), key=lambda a: (a.operation, a.name))
    fields = ("operation", "algorithm", "default", "summary", "family")
    rows = [dict(zip(fields, (a.operation, a.name, a.default, a.summary, _family(a)), strict=True)) for a in found]
    shown = [{"operation": a.operation, "algorithm": a.name + " *" * a.default, "": a.summary} for a in found]
    return Listing(
        tuple(rows), tuple(shown), "*: the default of its operation, where neither a name nor `auto` chooses another"
    )


def _family(found: Algorithm) -> str:
    """Return the first line of the docstring of the file that defines an algorithm."""
    said = getattr(found.build, "__globals__", {}).get("__doc__") or ""
    return str(said).strip().partition("\n")[0]


def list_topologies(name: str | None = None) -> Listing:
    """Return the topologies, each with an example that builds one, its source and its settings; or the settings of one.

    Args:
        name: The topology whose settings are listed, such as `nvl:576`; None: all topologies are.

    Raises:
        InputError: there is no such topology.
    """
    if name is not None:
        settings = TOPOLOGIES.find(name).settings
        told = tuple({"setting": setting, "default": default or "(must be given)"} for setting, default in settings)
        return Listing(tuple({"topology": name, "setting": key, "default": default} for key, default in settings), told)
    shown = [{"name": name, "example": of.example, "summary": of.summary} for name, of in TOPOLOGIES]
    rows = [{**row, "source": of.source, "settings": dict(of.settings)} for row, (_, of) in zip(shown, TOPOLOGIES, strict=True)]
    return Listing(tuple(rows), tuple(shown))


def list_models() -> Listing:
    """Return the models and their sizes; `active_parameters` are those that one token uses."""
    architectures = {name: one.name for _, one in ARCHITECTURES for name in one.configs}
    rows, shown = [], []
    for name, m in MODELS:
        sizes, total, active = {size: getattr(m, size) for size in _SIZES}, m.parameters(), m.active_parameters()
        more = {"top_k": m.top_k, "architecture": architectures.get(name, ""), "source": m.source}
        rows.append({"name": name, "parameters": total, "active_parameters": active, **sizes, **more})
        counts = {"parameters": format_count(total), "active": format_count(active)}
        shown.append({"name": name, **counts, **{size: str(count) for size, count in sizes.items()}})
    return Listing(tuple(rows), tuple(shown))


def list_devices() -> Listing:
    """Return the devices, and the sources of their figures."""
    rows, shown = [], []
    for name, d in sorted(DEVICES.items()):
        peaks = {f"{dtype}_FLOPs": d.peak(dtype) for dtype in ("bfloat16", "float32", TF32)}
        source = d.source + (f"; assumed: {d.assumed}" if d.assumed else "")
        sizes = {"hbm_Bps": d.hbm_Bps, "memory_bytes": d.memory_bytes, "cores": d.cores}
        rows.append({"name": name, **peaks, **sizes, "fitted_on": d.fitted_on or "", "source": source})
        shown.append(
            {
                "name": name,
                **{dtype: f"{format_flops(peak)}/s" for dtype, peak in peaks.items()},
                "hbm_Bps": format_bandwidth(d.hbm_Bps),
                "memory_bytes": format_size(d.memory_bytes),
                "cores": str(d.cores),
                "fitted_on": d.fitted_on or "unfitted",
                "source": source,
            }
        )
    return Listing(tuple(rows), tuple(shown))
