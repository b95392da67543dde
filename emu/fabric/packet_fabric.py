"""A packet fabric as a value and as text: the kind of network, its settings, and the seed and event budget of a run.

The module reads texts such as `packets:cell=8KiB,seed=1` and `roce:route=in-turn,pause_above=256KiB`. A setting has the name of
its field of `PacketNetwork`, without the unit; a value has a unit.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from emu.arrays import I64
from emu.errors import InputError, at_place, must_be
from emu.fabric.engine.packets.packet_network import (
    ASSUMED_NETWORK,
    PacketNetwork,
    network_of,
    unsourced_settings,
    unused_settings,
)
from emu.fabric.engine.packets.packet_run import PacketRun, check_unsprayed, run_packets, ways_of
from emu.fabric.engine.packets.ways import Ways
from emu.fabric.graph import Graph
from emu.registry import check_known_settings, parse_call
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_size, format_time, parse_size, parse_time, seconds

FLUID, PACKETS = "fluid", "packets"
DEFAULT_EVENTS = 2**31  # some minutes
MOST_SEED, MOST_EVENTS = 2**63 - 1, 2**62


@dataclass(frozen=True)
class PacketFabric:
    """A packet network with a seed and a budget, as an engine that times graphs.

    Where nobody chose a network, it is the one that the topology names, else roce; `on` returns the fabric with that network.
    """

    network: PacketNetwork = field(default_factory=lambda: network_of(ASSUMED_NETWORK))
    seed: int = 0
    most_events: int = DEFAULT_EVENTS
    is_chosen: bool = True  # whether the network was chosen, so that the topology's own does not count
    cell_bytes: int | None = None  # of the network that the topology names, in place of its own; None: its own

    def on(self, topology: Topology) -> "PacketFabric":
        """Return the fabric on a topology: with the topology's own network, if none was chosen.

        Where messages choose their way, those that would take the path of a hash choose by least-loaded here, too.

        Raises:
            InputError: A setting of the topology's network is unknown or impossible, or the cell does not fit it.
        """
        cell = {} if self.cell_bytes is None else {"cell_bytes": self.cell_bytes}
        network = self.network if self.is_chosen else own_network(topology, **cell)
        if topology.chooses and network.route == "hash":
            network = replace(network, route="least-loaded")
        return replace(self, network=network, is_chosen=True)

    def ways(self, graph: Graph, topology: Topology, key: I64) -> Ways:
        """Return the paths that packets of each message may take; `key` [V] is the key of each message's route."""
        return ways_of(graph, topology, self.network, key)

    def run(self, graph: Graph, topology: Topology, ways: Ways, seed: int | None = None) -> PacketRun:
        """Return the result of the packet engine for a graph; the errors are those of `run_packets`.

        Args:
            graph: The graph.
            topology: Its topology.
            ways: The paths that its messages may take; they do not depend on when messages start.
            seed: The seed of all random choices; None: the fabric's own.
        """
        return run_packets(graph, topology, self.network, self.seed if seed is None else seed, ways, self.most_events)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Sentences that say which assumptions a time by packets rests on."""
        said = _packets_sentence(self.network), _routes_sentence(self.network), _loss_sentence(self.network)
        unsourced = ", ".join(unsourced_settings(self.network))
        return said + ((f"no public source: {unsourced} of the network {self.network.kind}",) if unsourced else ())


def _packets_sentence(network: PacketNetwork) -> str:
    """Return the sentence of the report on the sizes of packets and on what nodes do with them."""
    unit = f", {format_size(network.cell_bytes)} of which are simulated as one cell" if network.cell_bytes else ""
    passed = "when its last byte is there" if network.forwarding == "store" else "as soon as it begins to arrive"
    delay = f" and {format_time(seconds(network.switch_fs))} later" if network.switch_fs else ""
    return (
        f"packets of {format_size(network.payload_bytes)} have {network.header_bytes} B of headers{unit}; "
        f"a node passes one on {passed}{delay}"
    )


_ROUTES = {
    "hash": "all packets of a message take its path, on the lanes that the topology's routes name, else on the first",
    "in-turn": "packets take the shortest paths in turn, in an order that each switch draws anew after each turn",
    "random": "each packet takes one of the shortest paths at random",
    "adaptive": "each packet takes the port with the shortest queue on one of the shortest paths, by classes of length",
    "entropy": "a sender goes through {entropies} values, one a packet; switches hash them over the shortest paths",
    "entropy-avoid": "a sender goes through {entropies} values, one a packet, but skips those that brought marks or trimmed "
    "packets; switches hash them over the shortest paths",
    "least-loaded": "a message takes the one of the shortest paths whose links have least to carry when it starts",
}


def _routes_sentence(network: PacketNetwork) -> str:
    """Return the sentence of the report on the routes of packets and on acknowledgements."""
    routes = _ROUTES[network.route].format(entropies=network.entropies)
    if network.acks == "none":
        return f"{routes}; there are no acknowledgements"
    many = f"{network.packets_per_ack} packets" if network.packets_per_ack > 1 else "a packet"
    return f"{routes}; an acknowledgement of {network.ack_bytes} B for {many} takes the way back"


def _loss_sentence(network: PacketNetwork) -> str:
    """Return the sentence of the report on full queues and on congestion control."""
    control = {"none": "no congestion control", "window": "a fixed window"}.get(network.congestion, network.congestion.upper())
    if network.lossless == "pause":
        low, high = format_size(network.resume_below_bytes), format_size(network.pause_above_bytes)
        return f"a link pauses while more than {high} that it brought wait behind it, until less than {low} do; {control}"
    if network.lossless == "credits":
        slows = "which slow down a link whose bandwidth times its round trip is more"
        each = f" for each {format_bandwidth(network.credit_link_Bps)} of it" if network.credit_link_Bps else ""
        return f"a link has credits for {format_size(network.credit_bytes)} in each of its lanes{each}, {slows}; {control}"
    lost = {"trim": "what finds a queue full is sent again", "drop": f"what finds a queue full is lost; {_recovery(network)}"}
    return f"{lost.get(network.lossless, 'queues have no limit')}; {control}"


def _recovery(network: PacketNetwork) -> str:
    """Return the phrase of the report on what is sent again after a loss."""
    what = "all from there on" if network.recovery == "go-back-n" else "it"
    return f"{what} is sent again, after {format_time(seconds(network.timeout_fs))} at the latest"


_SIZES = ("payload", "header", "ack", "queue", "pause_above", "resume_below", "credit")
_CONTROL_SIZES = ("window", "mark_from", "mark_to", "raise")
_COUNTS = ("packets_per_ack", "lanes", "reorder_packets", "entropies")
_SHARES = ("window_round_trips", "queue_round_trips", "mark_from_round_trips", "mark_to_round_trips")
_WORDS = ("forwarding", "acks", "lossless", "route", "congestion", "recovery", "host_queue")
_TIMES = ("switch", "timeout", "round_trip")


def packet_fabric(fabric: str, network: str = "") -> PacketFabric | None:
    """Return the packet fabric that the two options describe; None for the fluid fabric.

    Args:
        fabric: `fluid`, or `packets` with `cell`, `seed` and `events`, such as `packets:cell=8KiB`.
        network: The kind of network and settings of it, such as `roce:route=in-turn`; empty: the topology's own, else roce.

    Raises:
        InputError: A name, a setting or a value is none of these, or a network is given to the fluid fabric.
    """
    name, variant, given = parse_call(fabric, "fabric")
    if variant or name not in (FLUID, PACKETS):
        raise must_be("", "--fabric", f"{FLUID} or {PACKETS}, such as packets:cell=8KiB", fabric)
    if name == FLUID:
        if given or network:
            what, got = ("without settings", fabric) if given else ("packets where --network is given", fabric)
            raise must_be("", "--fabric", what, got, "the fluid fabric has no packets")
        return None
    check_known_settings("--fabric packets", ("cell", "seed", "events"), given)
    cell: dict[str, Any] = {"cell_bytes": parse_size(given["cell"], "cell")} if "cell" in given else {}
    run: dict[str, Any] = {}
    if "seed" in given:
        run["seed"] = _parse_count(given["seed"], "seed", MOST_SEED)
    if "events" in given:
        run["most_events"] = _parse_count(given["events"], "events", MOST_EVENTS)
    if not network:
        return PacketFabric(**run, **cell, is_chosen=False)
    kind, settings = _network_settings(network)
    return PacketFabric(_used_network(kind, settings | cell), **run)


def own_network(topology: Topology, **cell: int) -> PacketNetwork:
    """Return the network that a topology names; roce if it names none.

    Args:
        topology: The topology.
        **cell: `cell_bytes`, where an option gives them.

    Raises:
        InputError: The kind or a setting is unknown, or a value is impossible; the line begins with the topology.
    """
    if not topology.network:
        return network_of(ASSUMED_NETWORK, **cell)
    settings = {name: text for name, text in topology.network.items() if name != "kind"}
    kind = topology.network["kind"]
    try:
        read = _read_settings(f"network {kind}", settings, {"cell": ("cell_bytes", parse_size)})
        return _used_network(kind, read | cell)
    except InputError as error:
        raise at_place(f"{topology.name}, network", error) from error


def _used_network(kind: str, settings: dict[str, Any]) -> PacketNetwork:
    """Return a network with the settings that a text or a table gave, after the check that it uses each of them.

    Raises:
        InputError: There is no such kind, or a setting does not fit it; or it does not use one, so that its value would mean
            nothing.
    """
    network = network_of(kind, **settings)
    unused = unused_settings(network)
    for name, value in settings.items():
        if value and (mend := unused.get(name, "")):  # 0 turns some settings off
            other = mend.partition("=")[0]
            raise must_be("network", name, f"left out with {other}={getattr(network, other)}", value, f"only {mend} uses it")
    return network


class EngineChoice(NamedTuple):
    """The engine that gives the times, and whether packets check those of the fluid one."""

    packets: PacketFabric | None = None  # that give the times; None: the fluid fabric does
    check: PacketFabric | None = None  # that check fluid times; None: none do

    def check_whole(self, command: str) -> None:
        """Refuse packets, and the check by them, for a job in which nodes or links fail; the packet engine has no faults.

        Raises:
            InputError: Packets were chosen, or a check by them.
        """
        why = "packets know no faults during a run"
        if self.packets is not None:
            raise must_be(command, "--fabric", "fluid where --fault or --checkpoint is given", PACKETS, why)
        if self.check is not None:
            raise must_be(command, "--check-fabric", "left out where --fault is given", self.check.network.kind, why)

    def on(self, topology: Topology) -> "EngineChoice":
        """Return the choice on a topology, whose own network packets have where none was chosen.

        Raises:
            InputError: Packets are used, and the topology sprays messages; or as `PacketFabric.on`.
        """
        if self == FLUID_ENGINE:
            return self
        check_unsprayed(topology)
        return EngineChoice(*(each if each is None else each.on(topology) for each in self))

    def check_on(self, topologies: Iterable[Topology]) -> None:
        """Check that the engine can be used on all topologies; the errors are those of `on`."""
        for topology in topologies:
            self.on(topology)

    def check_clock(self, command: str, *, paced: bool) -> None:
        """Refuse the packet engine for a run whose ranks are paced in real time; only the fluid engine can do that.

        Args:
            command: The name of the command, for the error.
            paced: Whether the run is paced.

        Raises:
            InputError: Packets were chosen, and the run is paced.
        """
        if paced and self.packets is not None:
            why = "the fluid fabric says how long ranks of a paced run wait"
            raise must_be(command, "--fabric", "fluid where --pace is given", PACKETS, why)


FLUID_ENGINE = EngineChoice()
ADDING_ASSUMED = "adding what arrives takes no time"  # by either engine
FLUID_ASSUMED = (
    "messages share the bandwidth of a link max-min fairly",
    "a message takes the latencies of its links one after another, then flows over all of them at once",
    ADDING_ASSUMED,
)


def engine_choice(fabric: str, network: str = "", *, check_fabric: bool = False) -> EngineChoice:
    """Return the engine that options name.

    Args:
        fabric: As in `packet_fabric`.
        network: As in `packet_fabric`; of the packets that check a fluid time, too.
        check_fabric: Whether packets check the fluid time.

    Raises:
        InputError: As `packet_fabric`; or packets are to check packets.
    """
    if not check_fabric:
        return EngineChoice(packet_fabric(fabric, network))
    if packet_fabric(fabric) is not None:
        raise must_be("", "--fabric", f"{FLUID} where --check-fabric is given", fabric, "packets check the fluid time")
    return EngineChoice(check=packet_fabric(PACKETS, network))


def _network_settings(text: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of network and the values of its settings, parsed from a text."""
    kind, variant, given = parse_call(text, "network")
    if variant:
        raise must_be("", "--network", "a kind and settings, such as roce:route=in-turn", text)
    return kind, _read_settings(f"--network {kind}", given, {})


_Readers = dict[str, tuple[str, Callable[[str, str], Any]]]  # by the name of a setting: its field, and what reads its text


def _read_settings(where: str, given: Mapping[str, str], more: _Readers) -> dict[str, Any]:
    """Return the values of settings of a network by the names of their fields.

    Args:
        where: The place of the settings, for the error of an unknown one.
        given: The texts of the settings by name.
        more: Further settings that may be given.
    """
    readers: _Readers = more | {name: (f"{name}_bytes", parse_size) for name in _SIZES + _CONTROL_SIZES}
    readers |= {name: (name, _parse_count) for name in _COUNTS} | {name: (name, _parse_share) for name in _SHARES}
    readers |= {name: (name, lambda word, _: word) for name in _WORDS}
    readers |= {name: (f"{name}_fs", parse_time) for name in _TIMES}
    check_known_settings(where, readers, given)
    return {readers[name][0]: readers[name][1](value, name) for name, value in given.items()}


def _parse_count(text: str, name: str, most: int = 2**31 - 1) -> int:
    """Return the whole number from 0 to `most` that the text of a setting states."""
    if not text.isascii() or not text.isdigit():
        raise must_be("", name, "a whole number, 0 or more", text)
    digits = text.lstrip("0") or "0"
    if len(digits) > len(str(most)) or int(digits) > most:
        raise must_be(
            "", name, f"a whole number, at most {most}", text if len(text) <= 40 else f"{text[:20]}... ({len(text)} digits)"
        )
    return int(digits)


def _parse_share(text: str, name: str) -> float:
    """Return the number, 0 or more, that the text of a setting states."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise must_be("", name, "a number, 0 or more", text)
    return value
