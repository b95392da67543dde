"""A device of a profile: how it is found by its name, and which kernels of the profile it has."""

from dataclasses import replace
from itertools import permutations

import pytest

from emu.trace.device.measured import MeasuredKernel
from emu.trace.formats.kineto.profiled_kernels import SeenKernel, SeenKernels
from emu.trace.formats.profiled_device import device_like, profiled_device
from emu.trace.kernel_shape import Kernel
from tests.trace.laid import DEVICE

NAMES = "x1", "x10", "gx1", "xa-80g", "x1s-pcie"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (["Maker X1"], "x1"),
        (["MAKER X1-SXM 80GB"], "x1"),
        (["Maker X10"], "x10"),
        (["Maker X100"], ""),
        (["Maker GX1"], "gx1"),
        (["Maker-XA 40GB"], "xa-80g"),
        (["Maker XAB"], "xa-80g"),
        (["Maker X1S"], "x1s-pcie"),
        (["Something", "Maker x1 of 500 W"], "x1"),
        (["Maker Y1"], ""),
        ([], ""),
    ],
)
def test_the_longest_name_that_begins_a_word_and_whose_number_ends_is_meant(told: list[str], found: str) -> None:
    assert device_like(NAMES, told) == found
    for some in permutations(NAMES, 2):
        assert device_like(some, told) == (found if found in some else device_like([n for n in NAMES if n in some], told))
    for name in NAMES:
        assert device_like([name], [f"Maker {name.partition('-')[0].upper()} 80GB"]) == name


SIZED = {
    "product": MeasuredKernel(Kernel.PRODUCT, "float32", 2e-3, 1, 8, 4, 16),
    "moves": MeasuredKernel(Kernel.OTHER, "float32", 3e-3, bytes=64, name="add"),
}
WITHOUT = [
    SIZED["product"]._replace(m=0), SIZED["product"]._replace(n=0), SIZED["product"]._replace(k=0),
    SIZED["product"]._replace(seconds=0.0), SIZED["moves"]._replace(bytes=0), SIZED["moves"]._replace(seconds=0.0),
]  # fmt: skip
BASE_S, NO_GAP_S = 7e-6, 4e-10


def seen(*kernels: MeasuredKernel, launch_s: float | None, devices: tuple[str, ...] = ("Maker X1", "Maker X2")) -> SeenKernels:
    return SeenKernels(devices, tuple(SeenKernel(each, 5 + i, 0.0, 1.0, True) for i, each in enumerate(kernels)), 3, launch_s)


@pytest.mark.parametrize(
    ("launch_s", "more_s", "of_others_s"),
    [(5e-6, 5e-6, 5e-6), (None, BASE_S, BASE_S), (NO_GAP_S, 0.0, BASE_S), (0.0, 0.0, BASE_S)],
)
def test_its_kernels_take_as_long_as_measured_with_their_launch_before_those_of_the_base(
    launch_s: float | None, more_s: float, of_others_s: float
) -> None:
    """Kernels that the profile saw replace those of the base of the same size; one without a size or a time is left aside."""
    same, other = SIZED["product"]._replace(seconds=9.0), SIZED["product"]._replace(m=9, seconds=8.0)
    base = replace(DEVICE, measured=(other, same), launch_overhead_s=BASE_S, fitted_on="runs")
    found = profiled_device(base, seen(*WITHOUT[:3], *SIZED.values(), *WITHOUT[3:], launch_s=launch_s), "mine")
    own = [each._replace(seconds=pytest.approx(each.seconds + more_s)) for each in SIZED.values()]
    assert list(found.measured) == [*own, other]
    assert found.launch_overhead_s == of_others_s
    assert (found.name, found.step_errors, found.source) == ("mine", (), "a profile; the rest is of npu")
    holds = ", whose times hold their launch, as there are no gaps between them" if launch_s in (NO_GAP_S, 0.0) else ""
    count = sum(range(5, 13))
    assert found.fitted_on == f"{count} kernels of a profile of Maker X1 and Maker X2{holds}; what it did not see on npu"
    kept = replace(
        found, **{name: getattr(base, name) for name in ("name", "measured", "launch_overhead_s", "fitted_on", "source")}
    )
    assert kept == base


def test_a_profile_that_names_no_device_is_of_a_device() -> None:
    found = profiled_device(DEVICE, seen(launch_s=None, devices=()), "mine")
    assert found.fitted_on == "0 kernels of a profile of a device; what it did not see on npu"
    assert found.measured == ()
