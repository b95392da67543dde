"""Limits of what is shown, in a module that help texts can import without loading drawing code."""

MOST_RANKS, MOST_LINKS = 32, 64  # limits of the ranks and links that have lanes in a timeline of few
