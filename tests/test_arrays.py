"""Functions of arrays find what numpy finds in another way."""

import numpy as np
import pytest

from emu.arrays import ascending, distinct


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("below", [1, 7, 2**12, 2**20, 2**40])
def test_different_values_are_found_as_numpy_finds_them(seed: int, below: int) -> None:
    random = np.random.default_rng(seed)
    values = random.integers(0, below, random.integers(0, 50))
    found, place = distinct(values, below)
    wanted, at = np.unique(values, return_inverse=True)
    assert np.array_equal(found, wanted)
    assert np.array_equal(place, at)
    assert found.dtype == place.dtype == np.int64


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64, np.float64])
@pytest.mark.parametrize(("shape", "below"), [((0,), 9), ((1,), 9), ((500,), 3), ((500,), 2**31 - 1), ((20, 30), 50)])
def test_values_in_ascending_order_are_those_that_numpy_finds(dtype, shape, below):
    values = np.random.default_rng(3).integers(0, below, shape).astype(dtype)
    found, wanted = ascending(values), np.unique(values)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)
