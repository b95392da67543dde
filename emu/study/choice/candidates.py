"""The algorithms of an operation that could serve a group."""

from emu.collective.algorithm import ALGORITHMS, Algorithm, stored
from emu.collective.schedule import RowsError
from emu.errors import InputError
from emu.study.choice.site import Site
from emu.topology.placement import hubs


def takers(operation: str, site: Site) -> list[Algorithm]:
    """Return the algorithms of an operation that take the ranks of a site, without building one.

    Those that need a switch that adds are left out where none does.

    Raises:
        InputError: there are none.
    """
    adds = site.topology.adds
    found = [a for _, a in ALGORITHMS if a.operation == operation and site.takes(a) and (adds or not a.needs_adding)]
    if not found:
        where = f"{len(site.npus)} ranks of {site.topology.name}"
        raise InputError(f"choice: no algorithm of {operation} fits {where}; take another number of ranks")
    return found


def candidates(operation: str, site: Site) -> list[Algorithm]:
    """Return those of the takers whose schedule fits the memory, and for which the topology has as many switches as they need.

    Raises:
        InputError: as `takers`.
    """
    return [found for found in takers(operation, site) if _fits(found, site)]


def _fits(found: Algorithm, site: Site) -> bool:
    try:
        return has_helpers(stored(found.operation, found.name, len(site.npus), 0, site.grid).helpers, site)
    except RowsError:
        return False


def has_helpers(helpers: int, site: Site) -> bool:
    """Return whether so many switches that add are reached by all ranks of a site; true where none is needed."""
    if not helpers:
        return True
    return site.topology.adds and len(hubs(site.topology, site.placement(), helpers)) == helpers
