"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path

import click

from emu.collective.algorithm import Algorithm
from emu.collective.msccl.xml_format import file_program
from emu.model.stack.software import Software
from emu.model.stack.stack import ROLES, SOFTWARE, Stack
from emu.registry import import_file
from emu.trace.timed_dtype import AS_RAN
from launch.cli.options.files import FOLDER, INPUT, OutputFile, TraceFile, remember_input
from launch.cli.options.question_options import F, QuestionOptions, options
from launch.front.inputs import SWEPT
from launch.show.limits import MOST_RANKS
from launch.show.row_file import ENDINGS

_IMPORTED = "emu.imported"
_ALGORITHM_HELP = (
    "The algorithm of an operation, or of an operation on one axis (dp.all_gather=ring); repeat it for others. `auto` takes "
    "the fastest for each request, by its group and size, on each --topology. `nccl` takes what NCCL would take. `synthesized` "
    "makes a schedule for each request, as `emu synthesize` does; `auto+synthesized` takes the faster one of both. An "
    "operation that is not named is served by `auto`, or by the library of --stack. Data of a run are moved by the choice on "
    "the first --topology."
)
_CALLS = (
    "launch=TIME is added to each collective and message, alpha=TIME to each message, adding=TIME to each message to or from a "
    "switch that adds; bandwidth=0.8/0.9 is the share of a link's bandwidth that data reach, tier by tier; library=nccl lets "
    "NCCL's rules choose algorithms where --algorithm names none; `nccl` sets all of these to NCCL's values"
)


def _settings_told(software: Software) -> str:
    """Return a sentence that lists all settings of a training software."""
    words = ", ".join(f"{name}={'|'.join(known)}" for name, known in software.settings.items())
    return f"With {software.name}: {words} (the first is the default)."


_OF_SOFTWARE = " ".join(_settings_told(each) for each in SOFTWARE.values() if each != Stack().software)
_STACK_HELP = (
    f"The software and its settings; they change times and never results: software={'|'.join(SOFTWARE)}. "
    f"{_OF_SOFTWARE} With any of them: a dtype for {', '.join(ROLES)}. {_CALLS}."
)


_DTYPE_HELP = (
    f"The data type as which float32 is timed. {AS_RAN}: operators and messages are timed in the dtype that they ran in; "
    "products of float32 reach the peak of TF32 if the program allows TF32.  "
    f"[default: {AS_RAN}; bfloat16 for a trace of `emu train` or of an unknown command]"
)


_TRACE_HELP = (
    "`emu replay` and `emu compare` read it. NAME.et or a folder: execution traces of Chakra, one file a rank (NAME.0.et), "
    "with durations on the --device, as ASTRA-sim reads them. NAME.json.gz: a profile of each rank, as of PyTorch's profiler. "
    "NAME.goal: GOAL with the messages of collectives, for LogGOPSim."
)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
_out_option = click.option(
    "--out",
    type=OutputFile(*ENDINGS, rows=True),
    help="In place of the report, write its rows to this file as they become known: FILE.csv, or FILE.jsonl with a line of "
    "JSON for each row. `-` prints such lines.",
)
_html_option = click.option(
    "--html",
    type=OutputFile(),
    help="Write the report with charts and tables to this HTML file. It needs no network to be read.",
)


def _topology_option(more: str = "") -> Callable[[F], F]:
    """Return the option of a topology, with more help on how many a command takes."""
    return click.option(
        "--topology",
        multiple=True,
        required=True,
        metavar="NAME[:VARIANT][:key=value,...]|FILE",
        help="The network: a name from `emu list topologies` with its settings, the first of them also without names, such as "
        f"torus:4x4,50GB/s,1us; or a .toml, .csv or .graphml file.{more}",
    )


topology_option = _topology_option(" Repeat it to compare several.")
_one_topology_option = _topology_option()
model_option = click.option(
    "--model",
    required=True,
    metavar="NAME|FILE",
    help="The model: a name from `emu list models`, or a .toml file with sizes of your own.",
)
device_option = click.option(
    "--device",
    default="h100",
    show_default=True,
    help="The device: a name from `emu list devices`, or a FILE.toml such as `emu calibrate` writes.",
)
_replay_device_option = click.option(
    "--device",
    help="The device: a name from `emu list devices`, or a FILE.toml such as `emu calibrate` writes. "
    "[default: h100; kernels of a profile last as measured]",
)
_ALGORITHMS = "auto|nccl|synthesized|auto+synthesized|[AXIS.]OPERATION=NAME"
algorithm_option = click.option("--algorithm", multiple=True, metavar=_ALGORITHMS, help=_ALGORITHM_HELP)
stack_option = click.option("--stack", default="", metavar="software=megatron,...", help=_STACK_HELP)  # of a generated step
overheads_option = click.option(  # of a step that ran
    "--stack", default="", metavar="launch=TIME,...", help=f"The times of the software: {_CALLS}."
)
dtype_option = click.option("--dtype", help=_DTYPE_HELP)
cache_option = click.option("--cache", type=FOLDER, help="Keep results in this folder. [default: the user's cache]")
trace_option = click.option("--trace", type=TraceFile(), help=f"Save the trace of the run to this file; {_TRACE_HELP}")
step_trace_option = click.option("--trace", type=TraceFile(), help=f"Save the step to this file; {_TRACE_HELP}")
pace_events_option = click.option(
    "--pace-events",
    metavar="on|off",
    help="on: elapsed_time of a script's torch.cuda.Event is virtual time; off: it is the time of this host. "
    "[default: on, with --pace]",
)


def _default_to_swept(ctx: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Make the first value of a sweep the default of the option that it sweeps, which then need not be given."""
    for name, _equals, values in (text.partition("=") for text in texts):
        known = ctx.default_map = ctx.default_map or {}
        known.setdefault(name.strip().replace("-", "_"), values.partition(",")[0].partition("..")[0].strip())
    return texts


sweep_option = click.option(
    "--sweep",
    multiple=True,
    is_eager=True,  # read before click asks for required options, which a sweep may give
    callback=_default_to_swept,
    metavar="NAME=VALUES",
    help=f"Repeat the command with NAME at each of these values; give several sweeps for all combinations. NAME is {SWEPT}. "
    "VALUES are a list such as 1,2,4, or 25GB/s..400GB/s:5 for five values with a constant ratio. An option that is swept "
    "need not be given.",
)
fault_option = click.option(
    "--fault",
    multiple=True,
    metavar='"PART at step S"|FILE|"random link=RATE ..."',
    help="Let a part fail or slow down while the job runs, such as `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 "
    "from step 3 to 5` or `rank 2 kill at step 3`. A .toml file lists several faults; `random link=0.01 npu=0.001 seed=3` "
    "draws them. Repeat it for more.",
)
job_png_option = click.option(  # of a command that draws nothing but steps with faults
    "--png", type=OutputFile(".png"), help="Draw the time of each step to this file, with a mark at each --fault."
)
pace_option = click.option(
    "--pace",
    type=float,
    metavar="FACTOR",
    help="Run virtual time by the clock of this host: a second of virtual time takes FACTOR seconds, such as 1000. "
    "Each message is held until it arrives on the first --topology. [default: messages are not held]",
)
pace_compute_option = click.option(
    "--pace-compute",
    metavar="on|off",
    help="on: computation takes the device's time x FACTOR; off: the time of this host. [default: on, with --pace]",
)
perturb_option = click.option(
    "--perturb",
    type=int,
    default=0,
    metavar="N",
    help="Compute the time N more times (2 or more), with random starts one tick later, and print how far it spreads.",
)


def _load(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> None:
    """Load the files of `--import`, before other options are read."""
    for path in paths:
        remember_input("--import", path)
    filed = [thing for path in paths for thing in ([file_program(path)] if path.suffix == ".xml" else import_file(path))]
    ctx.meta[_IMPORTED] = tuple(filed) if paths else None


def imported_algorithms() -> list[Algorithm] | None:
    """Return the algorithms from the files given by `--import`; None if no file was given."""
    found: tuple[object, ...] | None = click.get_current_context().meta.get(_IMPORTED)
    return None if found is None else [thing for thing in found if isinstance(thing, Algorithm)]


import_option = click.option(
    "--import",
    type=INPUT,
    multiple=True,
    callback=_load,
    is_eager=True,
    expose_value=False,
    help="A file of your own: collectives, topologies or models in Python, or an MSCCL program (.xml).",
)
workers_option = click.option(
    "--workers",
    default="local",
    show_default=True,
    metavar="local|ray",
    help="The processes that do the jobs: of this machine (local), or tasks of a Ray (ray), with the same bits.",
)
patience_option = click.option(
    "--patience",
    type=float,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="End the run if a rank waits so long for something else than communication (a lock, a store) while all others wait.",
)
_PLAN_HELP = "The plan, in the words of `emu train --plan`."
timeline_options = options(
    click.option(
        "--timeline",
        type=OutputFile(),
        help=f"Write a timeline for ui.perfetto.dev to this file. Above {MOST_RANKS} ranks it shows one rank a role and stage.",
    ),
    click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline."),
)
row_options = options(_html_option, json_option, _out_option)  # of a command whose answer has rows
answer_options = options(import_option, row_options)
timing_options = options(topology_option, device_option, dtype_option, algorithm_option, overheads_option)  # of a trace
replay_options = options(topology_option, _replay_device_option, dtype_option, algorithm_option, overheads_option)
shown_options = options(_one_topology_option, _replay_device_option, dtype_option, algorithm_option, overheads_option)


def step_options(
    options_of: QuestionOptions, *own: Callable[[F], F], device: Callable[[F], F] = device_option
) -> Callable[[F], F]:
    """Return a decorator that adds the options of an estimated step.

    Args:
        options_of: The options of the question.
        own: Further options of the command, which come after those that say what the job is.
        device: The option of the device.
    """
    job = (
        model_option,
        options_of("plan", help=_PLAN_HELP, metavar="tp=8,sp,dp=8"),
        topology_option,
        options_of("global_batch", "seq"),
    )
    return options(*job, *own, device, algorithm_option, options_of("axes", "scale_dp"), stack_option)


def worker_options(options_of: QuestionOptions) -> Callable[[F], F]:
    """Return a decorator that adds the options for the processes that do jobs."""
    return options(workers_option, options_of("ray_address", metavar="HOST:PORT"))


def cluster_options(options_of: QuestionOptions) -> Callable[[F], F]:
    """Return a decorator that adds the options for where ranks run."""
    address, share = options_of("ray_address", metavar="HOST:PORT"), options_of("ranks_per_actor", metavar="N")
    return options(options_of("cluster"), address, share, options_of("ray_options", metavar="FILE"))
