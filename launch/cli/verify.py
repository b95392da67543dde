"""The command `emu verify`: proofs that collectives are correct."""

from typing import Any

import click

from launch.cli.options.common import answer_options, cluster_options, imported_algorithms, workers_option
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.proofs import verify

options_of = QuestionOptions(verify)
_RANKS = "The number of ranks; repeat it for several. [default: 1..17, 31, 32, 64]"


@click.command("verify")
@click.argument("operation", required=False)
@options_of("algorithm", metavar="NAME")
@options_of("ranks", help=_RANKS)
@options_of("max_ranks", "dims")
@click.option("--png", type=OutputFile(".png"), help="Draw the round of the first failure to this file.")
@cluster_options(options_of)
@workers_option
@answer_options
def verify_command(**options: Any) -> int:
    """Prove that collectives are correct, and compare their times with the claims of their papers.

    With --import, only the collectives of these files are proved. An algorithm on a grid is proved on every shape up to
    64 ranks, and above that on the best shape of each number of dimensions. A schedule with more than 2**24 rows is proved
    from the symmetry that it declares; if it declares none, the table says that it was not run.

    With --cluster ray, collectives are also executed on real tensors between processes (by default among 2, 3 and 4 ranks).

    \b
    emu verify
    emu verify all_reduce --algorithm ring --ranks 256
    emu verify --max-ranks 1024
    emu verify --import my_ring.py
    """
    return ask_and_save(verify, options, among=imported_algorithms())
