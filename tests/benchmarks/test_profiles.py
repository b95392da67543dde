"""The large profiles of `benchmarks.profiles` have the size that was asked for, and Emu reads all of them."""

import pytest

import emu
from benchmarks.profiles import BUCKET, RANKS, STEPS, TOPOLOGY, write_job
from emu.trace.formats.reading import reading_of


def test_a_job_has_its_size_and_every_kernel_is_read(tmp_path):
    """Counts are those of what was written; each fiftieth kernel is a request of all ranks."""
    kernels = write_job(tmp_path, 2e6)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) == pytest.approx(2e6, rel=0.05)
    read = reading_of(emu.load_trace(tmp_path))
    assert read.ranks == RANKS
    assert read.collectives == kernels // RANKS // BUCKET * RANKS
    assert read.computations == kernels - read.collectives
    assert read.left_out == {"python_function": kernels}
    step = emu.replay(tmp_path, topology=TOPOLOGY)
    assert step.measured_step_s == pytest.approx(kernels / RANKS / STEPS * 40e-6)
