"""Choices that are kept between commands, so that none is made twice: a file a fabric, in the user's cache folder.

A file is named by a digest of the fabric and of all the code that decides, so that it never goes stale. Nothing is kept of an
operation that a user's own file has an algorithm for: what that says may change at any time.
"""

import json
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

from emu.arrays import digest
from emu.collective.algorithm import ALGORITHMS, Served
from emu.errors import InputError
from emu.registry import catalogue_folders, is_of_catalogue
from emu.store import Store, user_folder
from emu.study.choice.site import Site
from emu.study.choice.wanted import Chosen, Wanted
from emu.topology.topology import Topology

_MOST_BYTES = 8 * 2**20  # of all files
_MOST = 2**12  # choices of a fabric
_STORES: list[Store] = []  # where choices are kept now: one, or nowhere


def keep_in(store: Store | None) -> None:
    """Keep choices there from now on; None: nowhere.

    Only where every topology is named by all that it is made of, as those of the catalogue and of files are, should they be
    kept: a router that is made in Python is not a part of any digest.
    """
    _STORES[:] = [] if store is None else [store]


def users() -> Store:
    """The store in the user's cache folder."""
    return Store(user_folder() / "choices", _MOST_BYTES)


def recall(site: Site, wanted: Wanted) -> Chosen | None:
    """What was chosen; None where nothing is kept of it, or nothing that can be read."""
    for store in _keeps(wanted):
        with suppress(InputError, KeyError, ValueError, TypeError):
            word, passed = _read(store, site.topology)[_key(site, wanted)]
            return Chosen(Served.parse(wanted.operation, word), tuple(passed))
    return None


def keep(site: Site, wanted: Wanted, chosen: Chosen) -> None:
    """Keep what was chosen; nowhere if the folder cannot be written."""
    for store in _keeps(wanted):
        known = [*_read(store, site.topology).items(), (_key(site, wanted), (str(chosen.served), chosen.passed))]
        with suppress(OSError):
            store.write(_name(site.topology), json.dumps(dict(known[-_MOST:])).encode())


def _keeps(wanted: Wanted) -> list[Store]:
    own = [found for _, found in ALGORITHMS if found.operation == wanted.operation and not is_of_catalogue(found)]
    return [] if own else _STORES


def _read(store: Store, topology: Topology) -> dict[str, tuple[str, list[str]]]:
    """What is kept of a fabric, by key; nothing if it cannot be read."""
    try:
        found = json.loads(store.read(_name(topology)) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(site: Site, wanted: Wanted) -> str:
    return digest((site.npus, site.grid, site.only, *wanted))


def _name(topology: Topology) -> str:
    return f"{digest((code(), topology.digest(), topology.adds, topology.circuits is None))}.json"


@cache
def code() -> str:
    """A digest of all of Emu's code and the catalogue's."""
    folders = [Path(__file__).parents[2], *catalogue_folders()]
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return digest((np.__version__, *((path.name, path.read_bytes()) for path in files)))
