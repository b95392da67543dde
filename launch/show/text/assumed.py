"""What figures rest on, as text."""

from collections.abc import Sequence


def assumed_lines(assumptions: Sequence[str]) -> list[str]:
    """A head, then a line a sentence."""
    return ["Assumed:", *(f"- {sentence}" for sentence in assumptions)]


def assumed_of_all(told: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """The same for several names: each sentence once, with the names that it is for where it is not for all.

    Args:
        told: Names, each with its sentences; a name may come again.
    """
    names = list(dict.fromkeys(name for name, _ in told))
    of: dict[str, list[str]] = {}
    for name, sentences in told:
        for sentence in sentences:
            if name not in of.setdefault(sentence, []):
                of[sentence].append(name)
    return assumed_lines([s if len(for_) == len(names) else f"{', '.join(for_)}: {s}" for s, for_ in of.items()])
