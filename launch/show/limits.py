"""Limits of what is shown that help texts name, too: a help text loads nothing of what draws."""

MOST_RANKS, MOST_LINKS = 32, 64  # limits of the ranks and links that have lanes in a timeline of few
