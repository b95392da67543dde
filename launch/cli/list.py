"""The command `emu list`: the collectives, topologies, models and devices that there are."""

from typing import Any

import click

from launch.cli.options.common import answer_options
from launch.cli.options.output import ask_and_save
from launch.front.listings import list_collectives, list_devices, list_models, list_topologies


@click.group("list")
def list_command() -> None:
    """List the collectives, topologies, models or devices that commands take.

    \b
    emu list collectives
    emu list topologies --json
    """


@list_command.command("collectives")
@answer_options
def _collectives(**options: Any) -> int:
    """List the algorithms of each operation.

    A star marks the default. `--json` adds their families.
    """
    return ask_and_save(list_collectives, options)


@list_command.command("topologies")
@click.argument("name", required=False)
@answer_options
def _topologies(**options: Any) -> int:
    """List topologies, or the settings of the one that is named.

    Each has an example that builds one. `--json` adds sources and settings.

    \b
    emu list topologies
    emu list topologies rail-optimised
    """
    return ask_and_save(list_topologies, options)


@list_command.command("models")
@answer_options
def _models(**options: Any) -> int:
    """List models and their sizes.

    `active` counts the parameters that one token uses. `--json` adds sources.
    """
    return ask_and_save(list_models, options)


@list_command.command("devices")
@answer_options
def _devices(**options: Any) -> int:
    """List devices, and the sources of their figures."""
    return ask_and_save(list_devices, options)
