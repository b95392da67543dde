"""The command `emu queue`: jobs over weeks on a machine that fails and is repaired."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.job_queues import queue

options_of = QuestionOptions(queue)
_AT_LEAST = click.IntRange(min=1)


@click.command("queue")
@common.topology_option
@options_of("arrivals")
@options_of("mix")
@options_of("jobs", type=_AT_LEAST)
@options_of("load")
@options_of("days")
@options_of("policy", metavar="NAME")
@options_of("tp", "npus", type=_AT_LEAST)
@options_of("checkpoint", "checkpoint_every", "restart", metavar="TIME")
@options_of("device", metavar="NAME|FILE.toml")
@options_of("faultless")
@options_of("log")
@options_of("servers", "npus_per_server", "npus_per_node", type=_AT_LEAST)
@options_of("mtbf", metavar="SPAN")
@options_of("afr", metavar="SHARE")
@options_of("mttr", metavar="SPAN")
@options_of("domain")
@options_of("seed", type=click.IntRange(min=0))
@options_of("seeds", type=_AT_LEAST)
@click.option("--png", type=OutputFile(".png"), help="Draw use and the largest job that could start, over time, to this file.")
@common.worker_options(options_of)
@common.answer_options
def queue_command(**options: Any) -> int:
    """Simulate a queue of jobs on a machine over weeks: waiting, utilisation, goodput, fragmentation and lost time.

    \b
    emu queue --topology infinitehbd:k=3 --topology nvl:72 --mix acme --load 80%
    emu queue --topology big-switch:n=2880 --mix philly --load 90% --policy fifo --policy backfill --png queue.png
    emu queue --topology servers:nodes=8 --arrivals jobs.csv --days 7 --faultless
    emu queue --topology infinitehbd:k=3 --topology nvl:72 --mix acme --load 80% --seeds 20
    """
    return ask_and_save(queue, options)
