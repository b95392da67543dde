"""A cache of choices between commands, so that none is made twice: one file for each fabric, in the user's cache folder.

A file is named by a digest of the fabric and of all code that decides, also that of users. So an entry never goes stale.
"""

import json
from contextlib import suppress
from typing import Any

from emu.arrays import digest
from emu.collective.algorithm import AlgorithmOnDims
from emu.errors import InputError
from emu.sources import code_digest
from emu.store import Store, user_folder
from emu.study.choice.site import Requirement, Selection, Site
from emu.topology.topology import Topology

_MOST_BYTES = 8 * 2**20  # limit of all files together
_MOST = 2**12  # limit of choices of one fabric
_STORES: list[Store] = []  # the store in use: one or none


def keep_in(store: Store | None) -> None:
    """Keep choices in a store from now on; with None, keep them nowhere.

    Choices must not be kept where code of users reads files: a file of choices has a name that is a hash of all code that
    decides, and this hash does not change when such a file changes.
    """
    _STORES[:] = [] if store is None else [store]


def user_store() -> Store:
    """Return the store in the user's cache folder."""
    return Store(user_folder() / "choices", _MOST_BYTES)


def recall(site: Site, wanted: Requirement) -> Selection | None:
    """Return the choice that the cache has for an operation on a group's NPUs; None if it has none that can be read."""
    found = recall_entry(site.topology, _key(site, wanted))
    with suppress(InputError, ValueError, TypeError):
        word, passed = found
        return Selection(AlgorithmOnDims.parse(wanted.operation, word), tuple(passed))
    return None


def keep(site: Site, wanted: Requirement, chosen: Selection) -> None:
    """Write the choice for an operation on a group's NPUs to the cache; do nothing if its folder cannot be written.

    Args:
        site: The NPUs of the group.
        wanted: The operation, with its size.
        chosen: The algorithm that was chosen.
    """
    keep_entry(site.topology, _key(site, wanted), (str(chosen.served), chosen.passed))


def recall_entry(topology: Topology, key: str) -> Any:
    """Return the cache entry of a fabric under a key, which is a digest of all other inputs; None if there is none."""
    return next((found for store in _STORES if (found := _read(store, topology).get(key)) is not None), None)


def keep_entry(topology: Topology, key: str, value: object) -> None:
    """Keep a JSON value under a key of a fabric; do nothing if the folder cannot be written."""
    for store in _STORES:
        known = [*_read(store, topology).items(), (key, value)]
        with suppress(OSError):
            store.write(_name(topology), json.dumps(dict(known[-_MOST:])).encode())


def _read(store: Store, topology: Topology) -> dict[str, Any]:
    """Return all entries of a fabric by key; an empty dictionary if they cannot be read."""
    try:
        found = json.loads(store.read(_name(topology)) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _key(site: Site, wanted: Requirement) -> str:
    """Return the key of an operation, with its size, on a group's NPUs."""
    return digest((site.npus, site.grid, site.only, *wanted))


def _name(topology: Topology) -> str:
    """Return the file name of a fabric."""
    return f"{digest((code_digest(), topology.digest()))}.json"
