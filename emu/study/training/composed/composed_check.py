"""The check of a composed step by packets: its busiest request, with all groups of its axis, with the fabric to itself."""

from dataclasses import replace

import numpy as np

from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.busy_window import TimedGraph
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import run_graph
from emu.study.fabric_check import NOTHING_SENT, FabricCheck, check_fabric, unchecked
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.step.packet_step import request_name


def check_composed(step: StepOnFabric, fabric: PacketFabric) -> FabricCheck:
    """Return the check of a composed step by packets. It times the busiest request of the step with both engines.

    Args:
        step: The step, by the choice that serves it.
        fabric: The settings of the packet engine.
    """
    if not step.asked.requests:
        return unchecked(fabric.network.kind, NOTHING_SENT)
    number, share = step.busiest_request()
    asked = step.asked.requests[number]
    try:
        source = _traffic(step, number)
    except InputError as error:
        return unchecked(fabric.network.kind, str(error))
    name = request_name(asked.axis_name, asked.name, asked.size_bytes, asked.ranks)
    found = check_fabric(source, step.topology, fabric, lambda _: name, is_whole=False)
    return replace(found, share=found.share * share)


def _traffic(step: StepOnFabric, number: int) -> TimedGraph:
    """Return the messages of a request of all its groups, with their times.

    Raises:
        InputError: It has too many messages.
    """
    builder, keys = Builder(step.topology.capacity_Bps), [np.empty(0, np.int64)]
    for _, piece in step.messages_of(number):
        nobody = np.full(piece.orbit.size, -1)
        builder.piece(piece, nobody, nobody)
        keys.append(piece.route_keys)
    graph = builder.graph()
    return TimedGraph(graph, run_graph(graph), np.concatenate(keys), np.zeros(graph.n_tasks, np.int64))
