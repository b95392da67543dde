"""The notes of a trace on what served it: by which words on which fabrics, and whether it can be served so again."""

from types import SimpleNamespace

import pytest

from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.study.training.step.choices import (
    RecordedChooser,
    is_noted,
    is_synthesized,
    served_otherwise,
    with_choice,
    with_words,
    words_of,
)
from emu.topology.catalogue import build_topology
from tests.trace.laid import Words, trace_of

RING, DIRECT = (AlgorithmOnDims.parse("all_reduce", word) for word in ("ring", "direct"))
FIRST, SECOND, OTHER = (build_topology(f"switch:n={n},bandwidth=1GB/s,latency=1us") for n in (2, 3, 4))


def trace():
    """Two ranks that ask for one sum."""
    words = Words()
    return trace_of(words.events(words.collective(4), words.mark([0])))


def test_words_are_known_of_every_fabric_and_the_dtype_by_which_a_run_was_timed():
    """A run may have been timed without any word."""
    noted = with_words(trace(), ("auto", "all_reduce=ring"), (FIRST, SECOND), "bfloat16")
    assert words_of(noted, FIRST, "bfloat16") == words_of(noted, SECOND, "bfloat16") == ("auto", "all_reduce=ring")
    assert words_of(noted, OTHER, "bfloat16") is None
    assert words_of(noted, FIRST, "float32") is None
    assert words_of(with_words(trace(), (), (FIRST,), "float32"), FIRST, "float32") == ()
    assert words_of(trace(), FIRST, "float32") is None


@pytest.mark.parametrize(("word", "is_made"), [("ring", False), ("synthesized-1", True)])
def test_a_trace_notes_what_served_each_request_and_whether_it_was_a_schedule_that_no_other_place_knows(word, is_made):
    noted = with_choice(trace(), Choice({}, chooser=lambda _: AlgorithmOnDims(word)))
    assert (is_noted(noted), is_synthesized(noted)) == (True, is_made)
    assert not is_noted(trace())
    assert not is_synthesized(trace())


def test_a_trace_is_served_otherwise_where_one_of_its_requests_has_another_algorithm():
    request = Request("all_reduce", (0, 1), 0, 4, "float32")
    services = [SimpleNamespace(request=request, by=by) for by in (RING, DIRECT)]
    noted = with_choice(trace(), Choice.parse(("all_reduce=ring",)))
    assert not served_otherwise(noted, services[:1])
    assert served_otherwise(noted, services)
    assert not served_otherwise(trace(), services)


def test_a_request_is_known_by_its_axis_or_else_by_none_and_however_many_groups_make_it():
    """Traces of an older Emu name no axis."""
    one = Request("all_reduce", (0, 1), 0, 4, "float32", axis="tp")
    chooser = RecordedChooser({one: RING, one._replace(axis=""): DIRECT})
    assert chooser(one) == chooser(one._replace(groups=3)) == RING
    assert chooser(one._replace(axis="dp", groups=2)) == DIRECT
    assert chooser(one._replace(ranks=(0, 2))) is None
