"""The page of a run by packets has a code for each moment of a cable: here of links with two queues each, by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from emu.topology.topology import Links
from emu.units import TICKS_PER_S
from launch.show.html.link_map import RAMP
from launch.show.html.queue_map import _codes, _words, moments

MS = TICKS_PER_S // 1000


def run_of(queue_bytes, pauses=(), sample_fs=MS):
    """A run of which `queue_bytes` [T, 4] are sampled, with pauses of a queue from a tick until another."""
    links = Links.of(np.array([0, 1]), np.array([1, 0]), 1e9, 0, 0)
    run = SimpleNamespace(
        queue_bytes=np.array(queue_bytes, np.int64),
        pauses=np.array([(*pause, 0) for pause in pauses], np.int64).reshape(-1, 4),
        sample_fs=sample_fs,
        lanes=2,
    )
    return SimpleNamespace(topology=SimpleNamespace(links=links), run=run, port=lambda queue: f"port {queue}")


def test_a_port_has_the_fullest_of_its_queues_and_is_paused_where_one_of_them_is():
    assert len(RAMP) == 7
    found = run_of([(70, 9, 0, 0), (0, 9, 0, 0), (10, 30, 0, 0)])
    level, paused = found.run.queue_bytes, np.zeros((3, 4), np.bool_)
    assert _codes(found, level, paused) == {"0": "714"}  # seven levels of 10 bytes each; the other port has none
    paused[0, 1] = paused[1, 0] = paused[2, 3] = True
    assert _codes(found, level, paused) == {"0": "f94", "1": "008"}


def test_a_moment_is_told_with_its_fullest_port_and_with_how_many_are_paused():
    found = run_of([(0, 0, 0, 0), (1024, 2048, 0, 0), (0, 0, 0, 1024)])
    paused = np.array([(0, 0, 0, 1), (0, 0, 0, 0), (1, 1, 0, 0)], np.bool_)
    assert _words(found, found.run.queue_bytes, paused) == [
        "0 s: nothing waits; 1 port paused",
        "1 ms: fullest: port 1, 2 KiB; 0 ports paused",
        "2 ms: fullest: port 3, 1 KiB; 2 ports paused",
    ]


def test_a_queue_is_paused_in_each_moment_from_the_first_to_the_last_of_its_pauses():
    """Two pauses at one time count as one, and one that lasts beyond the samples ends with them."""
    pauses = [(0, 0, 2 * MS), (0, MS, MS), (1, 3 * MS + 1, 9 * MS), (3, 2 * MS - 1, 2 * MS - 1)]
    _, paused = moments(run_of(np.zeros((5, 4)), pauses))
    assert paused.T.astype(int).tolist() == [[1, 1, 1, 0, 0], [0, 0, 0, 1, 1], [0] * 5, [0, 1, 0, 0, 0]]


@pytest.mark.parametrize(("samples", "shown", "each"), [(240, 240, 1), (241, 121, 2), (480, 240, 2), (481, 161, 3)])
def test_a_long_run_is_shown_in_moments_of_several_samples_each_with_the_most_of_them(samples, shown, each):
    bytes_at = np.zeros((samples, 4), np.int64)
    bytes_at[:, 2] = np.arange(1, samples + 1)
    found = run_of(bytes_at, [(2, (samples - 1) * MS, samples * MS)])
    level, paused = moments(found)
    assert level.shape == paused.shape == (shown, 4)
    assert level[:, 2].tolist() == [*range(each, samples, each), samples]
    assert np.flatnonzero(paused[:, 2]).tolist() == [shown - 1]
    assert _words(found, level, paused)[1].startswith(f"{each} ms: fullest: port 2, ")
