"""Fifty programs drawn at random on one Ray, most with a fault: each ends in time, with the right data or one line."""

import re
import time
from contextlib import suppress
from itertools import cycle, islice

import psutil
import pytest

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.errors import RunError
from launch.ray.cluster import RayCluster
from tests.cluster.drawn import FAULTS, Drawn, N
from tests.launch.processes import gone, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]
PROGRAMS = [Drawn(1000 + i, fault) for i, fault in enumerate(islice(cycle(FAULTS), 50))]
LONGEST_S = 180  # with new actors, on a busy machine


def outcome(run, program):
    """The data, or what is told."""
    try:
        return run(N, Choice(), program)
    except SystemExit as left:
        return f"exit {left.code}"
    except RunError as error:
        return str(error)


def actors(of):
    found = []
    for each in of.children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            found += [each] if each.name().startswith("ray::Ranks") else []
    return found


def test_fifty_drawn_programs_end_with_the_right_data_or_one_line():
    with RayCluster(per_actor=2, timeout_s=30.0) as cluster:
        ray = psutil.Process(cluster._process._process.pid)
        for program in PROGRAMS:
            began = time.monotonic()
            got = outcome(cluster.run, program)
            assert time.monotonic() - began < LONGEST_S, program
            if FAULTS[program.fault]:
                assert isinstance(got, str), (program, program.plan, got)
                assert re.search(FAULTS[program.fault], got), (program, program.plan, got)
                assert len(got.splitlines()) == 1
            else:
                assert got == LocalCluster().run(N, Choice(), program), program
            assert len(actors(ray)) <= N // 2, program
        started = ray.children(recursive=True)
    cluster._process.log.unlink(missing_ok=True)
    wait_for(lambda: gone(started))
