"""How the choice for a whole step differs from what is the fastest for each request alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Requests that are served otherwise than each of them would be alone."""

    axis: str
    operation: str
    least_bytes: int
    most_bytes: int
    algorithm: str
    instead_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenForStep:
    """What choosing for the whole step has changed."""

    alone_step_time_s: float  # of the step where each request is served by what is the fastest for it alone
    changed: tuple[Changed, ...]
