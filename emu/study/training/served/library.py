"""What would serve a step if nothing was chosen for it: a choice for a step begins from it, too, and is never slower."""

from collections.abc import Mapping

from emu.collective.algorithm import Choice, Chooser

LIBRARY, RAN = "library", "as it ran"


def others(ran: Chooser | None = None) -> Mapping[str, Chooser]:
    """Choosers by name: what a library of collectives chooses by itself, and what served a run of the step, if there was one.

    The library is the defaults of operations, mostly rings.
    """
    library = {LIBRARY: Choice().served}
    return library if ran is None else {**library, RAN: ran}
