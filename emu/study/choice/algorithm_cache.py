"""A cache of choices between commands, so that none is made twice: one file a fabric, in the user's cache folder.

A file is named by a digest of the fabric and of all the code that decides, users' files too, so that it never goes stale.
"""

import json
from contextlib import suppress
from typing import Any

from emu.arrays import digest
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.errors import InputError
from emu.sources import code_digest
from emu.store import Store, user_folder
from emu.study.choice.requirement import Requirement, Selection
from emu.study.choice.site import Site
from emu.topology.topology import Topology

_MOST_BYTES = 8 * 2**20  # of all files
_MOST = 2**12  # choices of a fabric
_STORES: list[Store] = []  # where choices are kept now: one, or nowhere


def keep_in(store: Store | None) -> None:
    """Keep choices there from now on; None: nowhere.

    Choices must not be kept where code of users reads files, as these files are a part of no digest.
    """
    _STORES[:] = [] if store is None else [store]


def users() -> Store:
    """Return the store in the user's cache folder."""
    return Store(user_folder() / "choices", _MOST_BYTES)


def recall(site: Site, wanted: Requirement) -> Selection | None:
    """Return what was chosen; None where nothing is kept of it, or nothing that can be read."""
    found = recall_entry(site.topology, _key(site, wanted))
    with suppress(InputError, ValueError, TypeError):
        word, passed = found
        return Selection(Served.parse(wanted.operation, word), tuple(passed))
    return None


def keep(site: Site, wanted: Requirement, chosen: Selection) -> None:
    """Keep what was chosen; nowhere if the folder cannot be written."""
    keep_entry(site.topology, _key(site, wanted), (str(chosen.served), chosen.passed))


def recall_entry(topology: Topology, key: str) -> Any:
    """Return what is kept for a fabric under a digest of all else that it follows from; None: nothing is."""
    return next((found for store in _STORES if (found := _read(store, topology).get(key)) is not None), None)


def keep_entry(topology: Topology, key: str, value: object) -> None:
    """Keep a value that JSON can have; nowhere if the folder cannot be written."""
    for store in _STORES:
        known = [*_read(store, topology).items(), (key, value)]
        with suppress(OSError):
            store.write(_name(topology), json.dumps(dict(known[-_MOST:])).encode())


def _read(store: Store, topology: Topology) -> dict[str, Any]:
    """Return what is kept of a fabric, by key; nothing if it cannot be read."""
    try:
        found = json.loads(store.read(_name(topology)) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(site: Site, wanted: Requirement) -> str:
    return digest((site.npus, site.grid, site.only, *wanted))


def _name(topology: Topology) -> str:
    return f"{digest((code_digest(), topology.digest()))}.json"
