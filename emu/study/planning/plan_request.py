"""The request of a search for plans, its candidates, and the amounts of its work."""

from dataclasses import dataclass
from typing import NamedTuple

from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.study.training.estimate import DEFAULT_STACK

TABLE_ROWS = 10  # plans of a table


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """A request for the plans that train a model fastest on a number of NPUs."""

    model: str | Model  # its name, its file, or the model itself
    npus: int
    global_batch: int
    seq: int
    stack: Stack = DEFAULT_STACK
    algorithms: tuple[str, ...] = ()  # OPERATION=NAME, or `auto`
    given: str = ""  # words that every plan of the search must have, such as `tp=8,sp`
    beside: tuple[Plan, ...] = ()  # plans that the user names, ranked with those that the search finds
    top: int = TABLE_ROWS  # how many plans the table has
    prove_all: bool = False  # whether to go on until all plans of the table are proved, without a limit of work


class Work(NamedTuple):
    """The amounts of work of a search: composed steps, timed requests and generated plans; limits are in the same form."""

    steps: int  # steps that are composed by the quick way
    requests: int  # requests whose least time is computed
    plans: int  # plans whose passes are generated


class Candidate(NamedTuple):
    """A plan on one topology, with the order in which its axes are placed on NPUs: the axis of neighbouring NPUs first.

    A plan that is not placed yet has no axes, and may be for any topology (-1).
    """

    topology: int  # its number among the topologies of the search; -1: any of them
    plan: Plan
    axes: tuple[str, ...]  # axes of the plan, that of neighbouring NPUs first; (): any placement

    @property
    def tie_key(self) -> tuple[int, str, int, tuple[str, ...]]:
        """The key by which candidates of equal times are ordered."""
        return self.topology, spell(self.plan), self.plan.pass_batch, self.axes
