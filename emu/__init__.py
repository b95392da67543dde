"""Emu emulates training clusters: one schedule is executed on tensors, timed on a virtual fabric, and proved.

The names below are the public interface of the library: a function for each question that the command line answers, and the
types of its arguments. Each name is imported when it is first used, so that `import emu` takes no time.
"""

from typing import TYPE_CHECKING

from emu.late_names import late_names

if TYPE_CHECKING:
    from emu import register as register
    from emu.collective.algorithm import collective as collective
    from emu.collective.algorithm import schedule as schedule
    from emu.collective.choice import Choice as Choice
    from emu.collective.claim import Claim as Claim
    from emu.collective.operation import operation as operation
    from emu.collective.proof import prove as prove
    from emu.collective.schedule import Schedule as Schedule
    from emu.collective.schedule import Sends as Sends
    from emu.errors import EmuError as EmuError
    from emu.errors import InputError as InputError
    from emu.errors import RunError as RunError
    from emu.fabric.lower import FabricJob as FabricJob
    from emu.fabric.lower import lower as lower
    from emu.fabric.run import run_graph as run_graph
    from emu.model.model import Model as Model
    from emu.study.planning.find import InterruptedSearch as InterruptedSearch
    from emu.topology.description.networkx_graph import topology_of as topology_of
    from emu.topology.topology import Topology as Topology
    from emu.trace.device.device import Device as Device
    from emu.trace.trace import Trace as Trace
    from launch.data.devices import find_device as find_device
    from launch.front.calibrations import calibrate as calibrate
    from launch.front.designs import design as design
    from launch.front.exhibits import draw as draw
    from launch.front.exhibits import show_collective as show_collective
    from launch.front.exhibits import show_topology as show_topology
    from launch.front.fabric_runs import show_fabric_run as show_fabric_run
    from launch.front.inputs import build_topology as build_topology
    from launch.front.inputs import find_model as find_model
    from launch.front.job_queues import queue as queue
    from launch.front.listings import list_collectives as list_collectives
    from launch.front.listings import list_devices as list_devices
    from launch.front.listings import list_models as list_models
    from launch.front.listings import list_topologies as list_topologies
    from launch.front.machine_faults import faults as faults
    from launch.front.measurements import bench as bench
    from launch.front.network_costs import cost as cost
    from launch.front.proofs import verify as verify
    from launch.front.publications import repro as repro
    from launch.front.sharing.shared_jobs import jobs as jobs
    from launch.front.steps.estimates import estimate as estimate
    from launch.front.steps.outages import outage as outage
    from launch.front.steps.replays import compare as compare
    from launch.front.steps.replays import load_trace as load_trace
    from launch.front.steps.replays import replay as replay
    from launch.front.steps.runs import run as run
    from launch.front.steps.searches import plan as plan
    from launch.front.steps.trainings import train as train
    from launch.front.syntheses import synthesize as synthesize
    from launch.front.timelines import show_timeline as show_timeline
    from launch.show.progress import progress as progress

__version__ = "0.1.0"

# The module of each name. Questions are answered by the application, which stands above the library: these are the only names
# by which the library knows it, and they are imported when they are asked for.
_HOME = {
    "Choice": "emu.collective.choice",
    "Claim": "emu.collective.claim",
    "Device": "emu.trace.device.device",
    "EmuError": "emu.errors",
    "FabricJob": "emu.fabric.lower",
    "InputError": "emu.errors",
    "InterruptedSearch": "emu.study.planning.find",
    "Model": "emu.model.model",
    "RunError": "emu.errors",
    "Schedule": "emu.collective.schedule",
    "Sends": "emu.collective.schedule",
    "Topology": "emu.topology.topology",
    "Trace": "emu.trace.trace",
    "bench": "launch.front.measurements",
    "build_topology": "launch.front.inputs",
    "calibrate": "launch.front.calibrations",
    "collective": "emu.collective.algorithm",
    "compare": "launch.front.steps.replays",
    "cost": "launch.front.network_costs",
    "design": "launch.front.designs",
    "draw": "launch.front.exhibits",
    "estimate": "launch.front.steps.estimates",
    "faults": "launch.front.machine_faults",
    "find_device": "launch.data.devices",
    "find_model": "launch.front.inputs",
    "jobs": "launch.front.sharing.shared_jobs",
    "list_collectives": "launch.front.listings",
    "list_devices": "launch.front.listings",
    "list_models": "launch.front.listings",
    "list_topologies": "launch.front.listings",
    "load_trace": "launch.front.steps.replays",
    "lower": "emu.fabric.lower",
    "operation": "emu.collective.operation",
    "outage": "launch.front.steps.outages",
    "plan": "launch.front.steps.searches",
    "progress": "launch.show.progress",
    "prove": "emu.collective.proof",
    "queue": "launch.front.job_queues",
    "register": "emu.register",
    "replay": "launch.front.steps.replays",
    "repro": "launch.front.publications",
    "run": "launch.front.steps.runs",
    "schedule": "emu.collective.algorithm",
    "show_collective": "launch.front.exhibits",
    "show_fabric_run": "launch.front.fabric_runs",
    "show_timeline": "launch.front.timelines",
    "show_topology": "launch.front.exhibits",
    "synthesize": "launch.front.syntheses",
    "topology_of": "emu.topology.description.networkx_graph",
    "train": "launch.front.steps.trainings",
    "verify": "launch.front.proofs",
    "run_graph": "emu.fabric.run",
}
__all__ = tuple(_HOME)
__getattr__, __dir__ = late_names(__name__, _HOME, "__version__")
