"""The assumptions of a report as text."""

from collections.abc import Sequence


def assumption_lines(assumptions: Sequence[str]) -> list[str]:
    """Return the lines under "Assumed:", a line for each sentence."""
    return ["Assumed:", *(f"- {sentence}" for sentence in assumptions)]


def merged_assumption_lines(told: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return the assumptions of several results, each sentence once.

    A sentence that not all results have begins with the names of those that have it.

    Args:
        told: Pairs of a name and the sentences of one result; a name may come again.
    """
    names = list(dict.fromkeys(name for name, _ in told))
    of: dict[str, list[str]] = {}
    for name, sentences in told:
        for sentence in sentences:
            if name not in of.setdefault(sentence, []):
                of[sentence].append(name)
    return assumption_lines([s if len(for_) == len(names) else f"{', '.join(for_)}: {s}" for s, for_ in of.items()])
