"""The file of `--ray-options`: where Ray places actors, in Ray's own terms."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.topology.read.values import check_keys, load_toml, read_word

STRATEGIES = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_KEYS = ("strategy", "resources", "wait_s", "runtime_env")


@dataclass(frozen=True, slots=True)
class RayOptions:
    """The placement and the environment of actors.

    Without a strategy or resources an actor takes no resources, and Ray spreads actors over the nodes.
    """

    strategy: str | None = None  # strategy of a placement group with one bundle for each actor
    resources: Mapping[str, float] = field(default_factory=dict)  # resources of each actor
    wait_s: float = 30.0  # time to wait for room for all actors
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> tuple[str, dict[str, float], float] | None:
        """Strategy, resources of each actor and seconds to wait for room; None: Ray spreads the actors."""
        if self.strategy is None and not self.resources:
            return None
        return self.strategy or "PACK", dict(self.resources) or {"CPU": 1.0}, self.wait_s


def read_options(path: Path | None) -> RayOptions:
    """Return the options in a file; without a file the defaults.

    Raises:
        InputError: the file cannot be read, or has an unknown key or an invalid value.
    """
    if path is None:
        return RayOptions()
    given = load_toml(path, "--ray-options", str(path))
    check_keys(given, _KEYS, path.name)
    strategy = read_word(given["strategy"], "strategy", STRATEGIES, path.name) if "strategy" in given else None
    resources = given.get("resources", {})
    if not isinstance(resources, dict) or not all(_is_amount(amount) for amount in resources.values()):
        raise must_be(path.name, "resources", "amounts above 0 by name", resources, "such as { CPU = 1, npu = 1 }")
    wait_s, env = given.get("wait_s", 30.0), given.get("runtime_env", {})
    if not _is_amount(wait_s):
        raise must_be(path.name, "wait_s", "seconds above 0", wait_s)
    if not isinstance(env, dict):
        raise must_be(path.name, "runtime_env", "a table as Ray takes it", env, "see Ray's pages on runtime environments")
    return RayOptions(strategy, resources, float(wait_s), env)


def _is_amount(value: object) -> bool:
    """Return whether a value is a number above 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
