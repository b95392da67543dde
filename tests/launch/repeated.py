"""Words of a command in which later options take the place of earlier ones."""

from collections.abc import Iterable


def replaced(words: Iterable[str], *more: str) -> list[str]:
    """Return words with more options behind them, without what the words themselves say of these options."""
    flags, kept, skips = {word for word in more if word.startswith("--")}, list[str](), False
    for word in words:
        skips = word in flags or (skips and not word.startswith("--"))
        if not skips:
            kept.append(word)
    return [*kept, *more]
