"""The requests of a step whose algorithm is free to choose."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from emu.collective.choice import Choice, Chooser
from emu.collective.chooser_names import SYNTHESIZED
from emu.study.choice.chooser import is_automatic
from emu.study.training.composed.requests_by_place import DistinctRequest, PlaceRequests
from emu.study.training.step_choice.options import (
    Coordinate,
    ServedFabric,
)
from emu.trace.matching.role_requests import MESSAGE
from emu.units import seconds


@dataclass(frozen=True, eq=False)
class FreeRequests:
    """The requests of a step whose algorithm is free to choose, with the fabric that serves them at present."""

    asked: PlaceRequests
    fabric: ServedFabric

    @cached_property
    def by_coordinate(self) -> Mapping[Coordinate, list[DistinctRequest]]:
        """The free requests, by their coordinate."""
        found: dict[Coordinate, list[DistinctRequest]] = {}
        for request in self.asked.requests:
            if is_free(request, self.fabric.choice):
                found.setdefault(Coordinate.of(request.of_group(0)), []).append(request)
        return found

    def heaviest(self, coordinate: Coordinate) -> DistinctRequest:
        """Return the request of a coordinate that moves most bytes in the whole step."""
        return max(self.by_coordinate[coordinate], key=lambda q: q.size_bytes * self._count(q))

    @cached_property
    def weights_s(self) -> Mapping[Coordinate, float]:
        """The seconds of each coordinate, as `_weight_s` counts them."""
        return {coordinate: self._weight_s(coordinate) for coordinate in self.by_coordinate}

    def _weight_s(self, coordinate: Coordinate) -> float:
        """Return the seconds that the requests of a coordinate take one after another at the busiest place of the pipeline.

        The time of each byte is taken to be the time of a byte of the heaviest request.
        """
        heaviest, of_place = self.heaviest(coordinate), Counter[int]()
        for q in self.by_coordinate[coordinate]:
            of_place[q.kind.place] += max(1, q.size_bytes) * self._count(q)
        return seconds(self.fabric.isolated(heaviest).ticks) * max(of_place.values()) / max(1, heaviest.size_bytes)

    def least_shares(self, coordinates: Iterable[Coordinate], others: Sequence[Chooser]) -> dict[int, float]:
        """Return the least time of each free request by any algorithm, as a share of its present time, by its number.

        Args:
            coordinates: The coordinates of these requests.
            others: Choosers that may serve a request, as in `least_ticks`.
        """
        found: dict[int, float] = {}
        for requests in map(self.by_coordinate.__getitem__, coordinates):
            heaviest = {q.kind.place: q for q in sorted(requests, key=lambda q: q.size_bytes)}
            least = {place: self.fabric.least_ticks(q, others) for place, q in heaviest.items()}
            shares = {place: ticks / max(1, self.fabric.isolated(heaviest[place]).ticks) for place, ticks in least.items()}
            found |= {self._number[id(q)]: shares[q.kind.place] for q in requests}
        return found

    def _count(self, asked: DistinctRequest) -> int:
        """Return the number of times that a request occurs in the step."""
        return int(self.asked.counts[self._number[id(asked)]])

    @cached_property
    def _number(self) -> Mapping[int, int]:
        """The number of each request of the step, by its identity."""
        return {id(request): i for i, request in enumerate(self.asked.requests)}


def is_free(asked: DistinctRequest, choice: Choice) -> bool:
    """Return whether a request is a collective for which the user names no algorithm, so that it is free to choose."""
    request = asked.of_group(0)
    return asked.name != MESSAGE and choice.named(request) is None and is_automatic(choice.chooser, request)


def is_made(asked: DistinctRequest, choice: Choice) -> bool:
    """Return whether a request is a collective for which a schedule may be synthesised."""
    request = asked.of_group(0)
    return asked.name != MESSAGE and choice.named(request) is None and is_automatic(choice.chooser, request, SYNTHESIZED)
