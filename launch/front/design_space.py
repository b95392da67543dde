"""The space of `emu design`, as words give it: topologies whose settings have several values, devices, and numbers of NPUs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emu.errors import InputError, must_be
from emu.memo import kept_by
from emu.model.stack.stack import Stack
from emu.registry import check_known_settings, parse_call
from emu.study.cost.network_cost import OwnershipTerms
from emu.study.cost.price_book import Price
from emu.study.design.point import DesignPoint, PricedDevice
from emu.study.faults.source import Faults
from emu.study.faults.waste import CopyStates, Machine, availability_of, check_group, machine_of
from emu.topology.catalogue import parse_topology, read_topology
from emu.topology.description.topology_file import is_file
from emu.topology.topology import Topology
from emu.units import is_whole
from launch.data.presets import GPUS
from launch.front import inputs
from launch.front.argument_rules import check_excludes, check_needs
from launch.front.fault_model import FAULT_EXCLUDES, FAULT_NEEDS, fault_model
from launch.front.machine_faults import MACHINE_NPUS
from launch.front.network_costs import npu_price
from launch.front.steps.sweeps import values_of

_MOST_POINTS = 200_000
_BRACES = re.compile(r"([^\s:,={}]+)=\{([^{}]*)\}")
_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kMG]?)([$W]?)")
_TIMES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_FAULTS: dict[str, Any] = {
    "log": None,
    "servers": None,
    "npus_per_server": GPUS,
    "npus_per_node": 4,
    "rate": None,
    "draws": 1000,
}
_FAULTS |= {"mtbf": None, "afr": None, "mttr": None, "days": "365d", "seed": 0}
_WHOLE = ("servers", "npus_per_server", "npus_per_node", "draws", "seed")


_Network = tuple[str | Topology, tuple[tuple[str, str], ...]]  # a topology, with the settings that tell it from others


def space_of(topologies: Any, devices: Sequence[str], npus: Any) -> list[DesignPoint]:
    """Return the points of a space: all topologies with all devices and all numbers of NPUs.

    Raises:
        InputError: a topology, a setting or a number is unknown or impossible, or there is no point, or far too many.
    """
    machines = [each for given in inputs.several(topologies) for each in _machines(given)]
    sizes = _sizes(npus)
    count = len(machines) * len(devices) * len(sizes)
    if not machines:
        raise must_be("design", "--topology", "one topology or more, such as nvl:72", topologies)
    if count > _MOST_POINTS:
        raise must_be("design", "points", f"{_MOST_POINTS:,} or fewer", f"{count:,}", "give fewer values of --topology")
    _check_different(machines)
    return [
        DesignPoint(topology, device, size, (*settings, ("device", device), ("npus", str(size))))
        for size, device, (topology, settings) in product(sizes, devices, machines)
    ]


def _check_different(machines: Sequence[_Network]) -> None:
    """Refuse a topology that is there twice: it would take two rows of the answer.

    Raises:
        InputError: two have the same name and the same settings; those of files and objects are not looked at.
    """
    known = set[frozenset[tuple[str, str]]]()
    for topology, settings in machines:
        if isinstance(topology, str) and frozenset(settings) in known:
            raise InputError(f"design: --topology has {topology} twice; leave one of them out")
        known.add(frozenset(settings))


def _machines(given: Any) -> Iterator[_Network]:
    """Yield the topologies of one argument, with the settings that tell them apart; a file or an object is one.

    Raises:
        InputError: a name or a setting is unknown, or a value is none.
    """
    if not isinstance(given, str | Path) or is_file(str(given)):
        built = inputs.build_topology(given)
        yield built, (("topology", built.name),)
        return
    for text in spread(str(given)):
        read_topology(text)  # a setting that is unknown is refused before anything starts
        name, settings = parse_topology(text)
        yield text, (("topology", name), *settings.items())


def spread(text: str) -> Iterator[str]:
    """Yield the texts that one with values in braces stands for, such as `torus:dims={4x4,8x8},bandwidth=50GB/s`.

    Values are those of a sweep: a list, or a range such as {25GB/s..400GB/s:5}. The last braces change fastest.

    Raises:
        InputError: braces are not those of a setting, or have no value, or one twice.
    """
    plain = _BRACES.sub(lambda found: f"{found[1]}={{}}", text)
    if re.search(r"[{}]", plain.replace("={}", "=")):
        raise must_be("design", "--topology", "such that braces hold the values of a setting, as in radix={8,16}", text)
    found = [values_of(name, values, "--topology") for name, values in _BRACES.findall(text)]
    pieces = plain.split("={}")
    for values in product(*found):
        yield "".join(piece + (f"={values[at]}" if at < len(values) else "") for at, piece in enumerate(pieces))


def _sizes(npus: Any) -> tuple[int, ...]:
    """Return the numbers of NPUs, from a number, a text such as `32,64`, or a sequence.

    Raises:
        InputError: one is no whole number of 1 or more.
    """
    text = npus if isinstance(npus, str) else ",".join(map(str, inputs.several(npus)))
    values = values_of("npus", text, "--npus")
    if not all(is_whole(value) and int(value) for value in values):
        raise must_be("design", "--npus", "whole numbers of 1 or more, such as 64 or 32,64,128", text)
    return tuple(map(int, values))


def devices_of(given: Any, npu: Any, years: float, kwh: float, stack: Stack) -> dict[str, PricedDevice]:
    """Return the devices of a space by name, with the terms of their ownership.

    Args:
        given: Names, files or objects; a text may have several names, separated by commas.
        npu: Prices such as `dollars=30000,watts=700` for all devices, or `h100:dollars=30000` for one.
        years: The years of energy.
        kwh: The price of a kilowatt-hour.
        stack: The stack, whose dtype the device must have.

    Raises:
        InputError: a device is unknown or there twice, or a price is of none of them.
    """
    words = [word for each in inputs.several(given) for word in _names(each)]
    if not words or "" in words:
        raise must_be("design", "--device", "names of devices, such as h100 or h100,h800", given)
    found = [inputs.device_of(word, stack.precision.activation) for word in words]
    names = [each.name for each in found]
    if len(set(names)) < len(names):
        raise must_be("design", "--device", "different devices", ", ".join(names), "leave one of them out")
    prices = _npu_prices(npu, names)
    return {each.name: PricedDevice(each, OwnershipTerms(prices[each.name], years, kwh)) for each in found}


def _names(given: Any) -> Sequence[Any]:
    """Return the devices that one argument gives: names separated by commas, unless the text has settings."""
    return given.split(",") if isinstance(given, str) and ":" not in given else [given]


def _npu_prices(npu: Any, devices: Sequence[str]) -> dict[str, Price]:
    """Return the price of an NPU of each device; one of its own comes before that of all.

    Raises:
        InputError: a price is none, is of another device, is there twice, or is missing for one of them.
    """
    given: dict[str, Price] = {}  # by device; "" is of all
    for text in inputs.several(npu):
        name, colon, price = text.rpartition(":")
        if colon and name not in devices:
            raise must_be("design", "--npu", f"of {' or '.join(devices)}", text)
        if name in given:
            raise InputError(f"design: --npu has two prices of {name or 'all devices'}; leave {text} out")
        given[name] = npu_price(price, "design")
    found = dict.fromkeys(devices, given[""]) if "" in given else {}
    found |= {name: price for name, price in given.items() if name}
    missing = [name for name in devices if name not in found]
    if found and missing:
        raise InputError(
            f"design: --npu gives no price for {', '.join(missing)}; add --npu {missing[0]}:dollars=30000,watts=700"
        )
    return found or dict.fromkeys(devices, Price(0.0, 0.0))


def amount_of(given: float | str | None, name: str, unit: str) -> float | None:
    """Return an amount of dollars or watts, such as `10M$` or `2MW`; None if it is not given.

    Raises:
        InputError: it is no amount above 0, or of another unit.
    """
    if given is None:
        return None
    text = str(given) if isinstance(given, str | bool) else f"{given:f}"
    found = _AMOUNT.fullmatch(text)
    value = float(found[1]) * _TIMES[found[2]] if found and found[3] in ("", unit) else 0.0
    if not value > 0:
        raise must_be("design", name, f"an amount above 0, such as 10M{unit} or 500k{unit}", given)
    return value


@dataclass(frozen=True, eq=False)
class MachineAvailability:
    """The share of a machine's NPUs that are in groups, in the mean over the time, as `emu faults` computes it."""

    arguments: dict[str, Any]  # of `emu faults`
    group: int

    def __call__(self, topology: Topology) -> float:
        """Return the availability of a machine of a topology, or of copies of it.

        Raises:
            InputError: no group fits.
        """
        machine = machine_of(topology, max(MACHINE_NPUS, topology.n_npus))
        check_group(machine, self.group)
        return availability_of(machine, self.group, self.faults(machine.npus).states.share, self._copies(machine))

    @kept_by(lambda _, npus: npus)
    def faults(self, npus: int) -> Faults:
        """Return the faults of a machine of so many NPUs."""
        return fault_model(self.arguments)(npus)

    @kept_by(lambda _, machine: (machine.npus, machine.copies))
    def _copies(self, machine: Machine) -> CopyStates:
        """Return the states of the copies of a machine."""
        return CopyStates.of_units(machine, self.faults(machine.npus).states.faulty)


def availability_by(text: str) -> MachineAvailability | None:
    """Return the availability of machines by settings of `emu faults`, such as `tp=8,mtbf=3y,mttr=4h`; None for "".

    Raises:
        InputError: a setting is unknown or impossible, or `tp` is missing.
    """
    if not text:
        return None
    given: dict[str, Any] = {
        name.replace("-", "_"): value for name, value in parse_call(f"faults:{text}", "--faults")[2].items()
    }
    check_known_settings("--faults", ("tp", *_FAULTS), given)
    for name in ("tp", *_WHOLE):
        if name in given and (not is_whole(given[name]) or (name != "seed" and not int(given[name]))):
            raise must_be("--faults", name, "a whole number of 1 or more", given[name])
        given |= {name: int(given[name])} if name in given else {}
    if "tp" not in given:
        raise InputError("--faults: tp is missing, the NPUs of a group; give tp=8")
    check_needs("--faults", FAULT_NEEDS, given)
    check_excludes("--faults", FAULT_EXCLUDES, given)
    arguments = _FAULTS | {"domain": ()} | given
    fault_model(arguments)  # refuses what does not go together before anything starts
    return MachineAvailability(arguments, given["tp"])
