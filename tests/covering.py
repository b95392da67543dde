"""Few combinations of settings in which every allowed pair of values occurs: a covering array of strength 2, found greedily.

A setting is a name with its values; what a combination does not name has its default, which is no value here: that one value
works beside the defaults of all others is held by taking it alone. Source: Cohen et al., The AETG System (1997).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

Chosen = tuple[tuple[str, str], ...]  # settings with their values, in the order of the settings
Settings = Mapping[str, Sequence[str]]
_MORE = 2  # values that are added at most to let what was asked for be allowed


def pairs(settings: Settings) -> Iterator[Chosen]:
    """Every two values of different settings."""
    for one, other in combinations(settings, 2):
        for values in product(settings[one], settings[other]):
            yield tuple(zip((one, other), values, strict=True))


def singles(settings: Settings) -> Iterator[Chosen]:
    """Every value alone."""
    for name, values in settings.items():
        for value in values:
            yield ((name, value),)


def completed(
    asked: Chosen, settings: Settings, allowed: Callable[[Chosen], bool], cost: Callable[[Chosen], float]
) -> Chosen | None:
    """Return what was asked for with the fewest, then the cheapest, further values that make it allowed; or None."""
    for more in range(_MORE + 1):
        found = [each for each in _with(asked, settings, more) if allowed(each)]
        if found:
            return min(found, key=cost)
    return None


def _with(asked: Chosen, settings: Settings, more: int) -> Iterator[Chosen]:
    free = [name for name in settings if name not in dict(asked)]
    for names in combinations(free, more):
        for values in product(*(settings[name] for name in names)):
            yield ordered((*asked, *zip(names, values, strict=True)), settings)


def ordered(chosen: Iterable[tuple[str, str]], settings: Settings) -> Chosen:
    """Return what was chosen in the order of the settings."""
    return tuple(sorted(chosen, key=lambda each: list(settings).index(each[0])))


def covering(settings: Settings, allowed: Callable[[Chosen], bool], cost: Callable[[Chosen], float]) -> list[Chosen]:
    """Allowed combinations in which every pair of values that is allowed in any occurs; the same every time.

    Each begins with the first pair that is still left, then takes value after value: the one that brings most new pairs for
    what it costs.
    """
    left = set(pairs(settings))
    found = []
    for pair in pairs(settings):
        start = completed(pair, settings, allowed, cost) if pair in left else None
        if start is not None:
            found.append(_grown(start, left, settings, allowed, cost))
            left -= set(combinations(found[-1], 2))
    return found


def _grown(
    chosen: Chosen, left: set[Chosen], settings: Settings, allowed: Callable[[Chosen], bool], cost: Callable[[Chosen], float]
) -> Chosen:
    """More values, as long as each brings pairs that are left at no higher cost a pair than before."""

    def worth(each: Chosen) -> float:
        return len(left & set(combinations(each, 2))) / cost(each)

    while True:
        further = [each for each in _with(chosen, settings, 1) if allowed(each)]
        best = max(further, key=worth, default=chosen)
        if worth(best) <= worth(chosen):
            return chosen
        chosen = best
