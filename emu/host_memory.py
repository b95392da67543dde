"""A check of the free memory of the machine that this process runs on."""

import psutil

from emu.errors import InputError
from emu.units import format_size


def check_free(command: str, what: str, needed: int, mend: str) -> None:
    """Check that this host has enough free memory.

    Args:
        command: The command, which begins the message.
        what: What takes the memory, with its verb, such as `4 ranks of 1 GiB take up to`.
        needed: Its bytes.
        mend: What the user may do instead.

    Raises:
        InputError: The message has both sizes.
    """
    free = psutil.virtual_memory().available
    if needed > free:
        raise InputError(
            f"{command}: {what} {format_size(needed)} of memory, and this host has {format_size(free)} free; {mend}"
        )
