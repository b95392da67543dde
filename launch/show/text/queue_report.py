"""A run by packets in words: its time, its ports, and who blocks whom."""

from collections.abc import Iterator
from itertools import islice

from emu.study.fabric_run import FabricRun, PortUse
from emu.study.pause_tree import HeldMessage, PauseTree
from emu.units import format_size, format_time, seconds
from launch.show.text.packet_lines import beside_fluid, waits_of_packets
from launch.show.text.table import Column, assumption_lines, column_table, figures

MOST_TREES, MOST_UPSTREAM, MOST_HELD = 3, 6, 4  # full ports, ports upstream of one, and messages that are told
_MOST_PORTS = 12


def queue_report(found: FabricRun, ports: tuple[PortUse, ...]) -> str:
    """Return the report of a run by packets: its time, the ports in which most waited, and the trees of pauses."""
    more = [f"and {len(ports) - _MOST_PORTS} ports more"] if len(ports) > _MOST_PORTS else []
    sections = (
        [run_title(found), *chosen_lines(found), *waits_of_packets(found.figures)],
        [column_table(port_columns(), ports[:_MOST_PORTS]), *more] if ports else [],
        [*pause_lines(found)],
        assumption_lines(found.assumptions),
    )
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def run_title(found: FabricRun) -> str:
    """Return what ran, on which topology and network, and its time beside the fluid one."""
    where = f"{found.name} on {found.topology.name} by packets of {found.fabric.network.kind}"
    return f"{where}: {beside_fluid(found.time_s, found.figures)}"


def chosen_lines(found: FabricRun) -> list[str]:
    """Return the line with the choice of a library in its own words; none where no library chose."""
    return [f"chosen: {found.chosen}"] if found.chosen else []


def port_columns() -> list[Column[PortUse]]:
    """Return the columns of the table of ports."""
    return [
        Column("port", lambda row: row.port),
        figures("most bytes", lambda row: row.most_bytes, format_size),
        figures("pauses", lambda row: row.pauses),
        figures("paused for", lambda row: row.paused_s, format_time),
        figures("held others up for", lambda row: row.blocked_s, format_time),
    ]


def unpaused(found: FabricRun) -> str:
    """Return the line that says that no link was paused, and why; empty if one was."""
    if len(found.causes.pauses):
        return ""
    network = found.fabric.network
    if network.lossless == "pause":
        return f"no link was paused: nowhere waited more than {format_size(network.pause_above_bytes)} that one link brought"
    how = {"credits": "links have credits", "trim": "full queues trim packets"}.get(network.lossless, "queues have no limit")
    return f"no link was paused: a network of {network.kind} has no pauses ({how})"


def pause_lines(found: FabricRun) -> Iterator[str]:
    """Yield who blocks whom: a tree for each of the ports that held up others longest, with the messages held up unduly."""
    if alone := unpaused(found):
        yield alone
        return
    yield f"who blocks whom, from the full port upstream{logged_text(found)}:"
    for tree in found.causes.trees[:MOST_TREES]:
        yield f"  {found.port(tree.queue)}: full; it held up"
        yield from _tree_lines(found, tree, 2)
        yield from (f"    not on its way there: {held_text(found, held)}" for held in found.held(tree.queue)[:MOST_HELD])
    if others := found.causes.trees[MOST_TREES:]:
        yield f"  {other_trees_text(others)}"


def logged_text(found: FabricRun) -> str:
    """Return in words that only the first pauses were logged; empty where all were."""
    known, every = len(found.run.pauses), found.run.n_pauses
    return f" (of the first {known:,} of {every:,} pauses)" if known < every else ""


def _tree_lines(found: FabricRun, tree: PauseTree, deep: int) -> Iterator[str]:
    """Yield a line for each paused port upstream of a port, indented by how far upstream it is."""
    for each in islice(tree.upstream, MOST_UPSTREAM):
        yield f"{'  ' * deep}{found.port(each.queue)}: {paused_text(each)}"
        yield from _tree_lines(found, each, deep + 1)
    if left := tree.upstream[MOST_UPSTREAM:]:
        yield f"{'  ' * deep}{others_text(left)}"


def paused_text(tree: PauseTree) -> str:
    """Return how long a port was paused, in words."""
    return f"paused for {format_time(seconds(tree.paused_fs))}, {tree.pauses} time{'s' * (tree.pauses != 1)}"


def others_text(left: tuple[PauseTree, ...]) -> str:
    """Return in words the ports upstream of one that are not told."""
    return f"and {len(left)} more, for {format_time(seconds(sum(each.paused_fs for each in left)))} in all"


def other_trees_text(others: tuple[PauseTree, ...]) -> str:
    """Return in words the full ports that are not told."""
    ports = "another port" if len(others) == 1 else f"{len(others)} other ports"
    return f"{ports} held up ports upstream for {format_time(seconds(sum(tree.held_fs for tree in others)))} in all"


def held_text(found: FabricRun, held: HeldMessage) -> str:
    """Return in words a message that was held up, where, and its time beside the fluid one."""
    took, fluid = (format_time(seconds(ticks)) for ticks in (held.time_fs, held.fluid_fs))
    paused = format_time(seconds(held.held_fs))
    return f"{found.message(held.task)}: {took} (fluid {fluid}), held up for {paused}, most in {found.port(held.queue)}"
