"""The refusal of an option that is given twice and takes one value, of which click would take the last and say nothing."""

from collections import Counter
from functools import cache

import click

from emu.errors import InputError


@cache
def without_repetition(command: click.Command) -> click.Command:
    """Return the command (or group), which from now on refuses an option that is given twice and takes one value."""
    if isinstance(command, click.Group):
        for each in command.commands.values():
            without_repetition(each)
    parse = command.parse_args

    def parse_once(ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            _check(command.make_parser(ctx).parse_args(args=list(args))[2])
        return parse(ctx, args)

    command.parse_args = parse_once  # type: ignore[method-assign]
    return command


def _check(given: list[click.Parameter]) -> None:
    """Refuse an option that is given more than once and takes one value; a flag says the same each time.

    Args:
        given: The parameters in the order of the command line, one as often as it is given.

    Raises:
        InputError: naming the option.
    """
    for param, times in Counter(given).items():
        if isinstance(param, click.Option) and times > 1 and not (param.multiple or param.is_flag or param.count):
            flag, often = max(param.opts, key=len), "twice" if times == 2 else f"{times} times"
            raise InputError(f"{flag}: given {often}; it takes one value, so leave all but one out")
