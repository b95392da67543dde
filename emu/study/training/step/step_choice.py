"""The difference between algorithms chosen for a whole step and the fastest algorithm of each request alone."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmChange:
    """Requests that have another algorithm in the step than each of them would have alone."""

    axis: str
    operation: str
    least_bytes: int
    most_bytes: int
    algorithm: str
    instead_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChoice:
    """The result of choosing algorithms for a whole step."""

    alone_step_time_s: float  # of the step where each request is served by what is the fastest for it alone
    changed: tuple[AlgorithmChange, ...]
