"""What a person says of actors in Ray's own words: `--ray-options FILE.toml`."""

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
    """Where actors are placed, and in which environment.

    Without a strategy or resources an actor takes no resources, and Ray spreads them over the nodes.
    """

    strategy: str | None = None  # of a placement group with a bundle an actor
    resources: Mapping[str, float] = field(default_factory=dict)  # of each actor
    wait_s: float = 30.0  # for room for all of them
    runtime_env: Mapping[str, Any] = field(default_factory=dict)

    @property
    def placement(self) -> tuple[str, dict[str, float], float] | None:
        """Strategy, resources and seconds to wait; None: wherever Ray likes."""
        if self.strategy is None and not self.resources:
            return None
        return self.strategy or "PACK", dict(self.resources) or {"CPU": 1.0}, self.wait_s


def read_options(path: Path | None) -> RayOptions:
    """The options of a file; those of no file are the defaults.

    Raises:
        InputError: a file that cannot be read, an unknown key, or a value that is none.
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
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
