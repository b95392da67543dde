"""Checks of options that exclude each other, as they say what is printed and saved of an answer."""

from collections.abc import Mapping
from typing import Any

from emu.errors import InputError, must_be


def check_sweep(where: str, options: Mapping[str, Any], *single: str) -> None:
    """Refuse options that show one step where there is a sweep.

    Args:
        where: The name of the command.
        options: The options of the command.
        single: The names of those that show one step.

    Raises:
        InputError: one of them was given.
    """
    for name in single:
        given = options[name]
        if options["sweep"] and given:
            told = ", ".join(given) if isinstance(given, tuple) else str(given)
            raise must_be(where, f"--{name}", "left out where there is a --sweep", told, "it shows a single step")


def check_fault(options: Mapping[str, Any], *single: str) -> None:
    """Refuse options that show one step where a job with faults or checkpoints has many.

    Args:
        options: The options of the command.
        single: The names of those that show one step.

    Raises:
        InputError: one of them was given.
    """
    for name in single:
        if (options["fault"] or options.get("checkpoint")) and options[name]:
            raise InputError(
                f"--{name}: shows a single step, and --fault and --checkpoint report every step of a job; leave --{name} out"
            )


def check_job_picture(options: Mapping[str, Any]) -> None:
    """Refuse `--png`, which draws the steps of a job with faults or checkpoints, where there is no such job.

    Raises:
        InputError: it was given.
    """
    if options["png"] is not None and not (options["fault"] or options.get("checkpoint")):
        raise InputError("--png: draws the steps of a job with faults, and no --fault is given; add a --fault")
