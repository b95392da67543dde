"""Words that stand in place of an algorithm's name: each place that has to know what they need reads one table."""

import pytest

from emu.collective.chooser_names import AUTO, NAMED, OWN_CHOOSERS, SYNTHESIZED, chooser_needs
from emu.errors import InputError
from launch.clusters import ClusterOptions


@pytest.mark.parametrize("word", OWN_CHOOSERS)
def test_a_word_needs_what_its_parts_need(word):
    parts = word.split("+")
    assert chooser_needs(word) == (AUTO in parts, SYNTHESIZED in parts)
    assert chooser_needs("ring") == chooser_needs("nccl") == NAMED


@pytest.mark.parametrize("word", [*OWN_CHOOSERS, "ring"])
def test_processes_of_a_ray_take_words_that_make_no_schedule_alone(word):
    ray = ClusterOptions(cluster="ray")
    if chooser_needs(word).makes:
        with pytest.raises(InputError, match="that every process finds"):
            ray.check_algorithms([f"dp.all_reduce={word}"])
    else:
        ray.check_algorithms([f"dp.all_reduce={word}", word])
    ClusterOptions(cluster="local").check_algorithms([word])
