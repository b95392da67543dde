"""The algorithms of an operation that could serve a group."""

from emu.collective.algorithm import ALGORITHMS, Algorithm, stored
from emu.collective.schedule import RowsError
from emu.errors import InputError
from emu.study.choice.site import Site
from emu.topology.placement import hubs


def fitting_algorithms(operation: str, site: Site) -> list[Algorithm]:
    """Return the algorithms of an operation that fit the ranks of a site, without building a schedule.

    Algorithms that need a switch that adds are left out where no switch adds.

    Raises:
        InputError: no algorithm fits.
    """
    adds = site.topology.adds
    found = [a for _, a in ALGORITHMS if a.operation == operation and site.takes(a) and (adds or not a.needs_adding)]
    if not found:
        where = f"{len(site.npus)} ranks of {site.topology.name}"
        raise InputError(f"choice: no algorithm of {operation} fits {where}; take another number of ranks")
    return found


def candidates(operation: str, site: Site) -> list[Algorithm]:
    """Return the fitting algorithms whose schedule fits the memory, and whose switches the topology has.

    Raises:
        InputError: no algorithm fits, as in `fitting_algorithms`.
    """
    return [found for found in fitting_algorithms(operation, site) if _fits(found, site)]


def _fits(found: Algorithm, site: Site) -> bool:
    """Return whether the schedule of an algorithm fits the memory and the topology has the switches that it needs."""
    try:
        return has_helpers(stored(found.operation, found.name, len(site.npus), 0, site.grid).helpers, site)
    except RowsError:
        return False


def has_helpers(helpers: int, site: Site) -> bool:
    """Return whether all ranks of a site reach this number of switches that add; true for 0 switches."""
    if not helpers:
        return True
    return site.topology.adds and len(hubs(site.topology, site.placement(), helpers)) == helpers
