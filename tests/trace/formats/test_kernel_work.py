"""Kernels of a profile have the work of the operators that launched them, by which another device times them."""

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.kineto.operator_work import work_of_kernel, work_of_launched, work_of_operator
from emu.trace.formats.kineto.profiled_kernels import seen_kernels
from emu.trace.formats.profiled_device import device_like
from emu.trace.kernel_shape import Kernel, Shape
from launch.data.devices import DEVICES
from tests.trace.formats.profiles import HOST, collective, kernel, profile_of, span, step, write

FAST = "switch:n=2,bandwidth=400GB/s,latency=1us"
BF16 = "c10::BFloat16"


def operator(name, ts, dur, dims, types, inputs=()):
    return span("cpu_op", name, ts, dur, HOST, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": list(inputs)})


def shaped_step(longer=0.0):
    """Return a step with a product of two kernels within a linear layer, a sum, and a kernel without an operator."""
    sizes = [[512, 256], [256, 1024]]
    return [
        step(1, 0, 900),
        operator("aten::linear", 1, 20, sizes, [BF16, BF16]),
        operator("aten::t", 2, 1, [[256, 1024]], [BF16]),
        operator("aten::mm", 4, 10, sizes, [BF16, BF16]),
        *kernel("gemm_bf16_128x128", 5, 30, 40 + longer, 1),
        *kernel("splitK_reduce", 8, 70 + longer, 2, 2),
        operator("aten::add", 22, 4, [[512, 1024], [512, 1024]], ["float", "float"]),
        *kernel("vectorized_add", 23, 80 + longer, 6, 3),
        *kernel("triton_fused_3", 30, 90 + longer, 7, 4),
        *collective("allreduce", 40, 100 + longer, 10, 5, 1000, 1000, [0, 1]),
    ]


@pytest.fixture
def shaped(tmp_path):
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, shaped_step(longer=10.0 * rank)))
    return tmp_path


def test_kernels_have_the_work_of_the_innermost_operator(shaped):
    events = emu.load_trace(shaped).events[0]
    assert events.name == ("gemm_bf16_128x128", "splitK_reduce", "vectorized_add", "triton_fused_3", "all_reduce")
    assert events.kernel.tolist() == [Kernel.PRODUCT, 0, 0, 0, 0]
    assert (events.batch[0], events.m[0], events.n[0], events.k[0]) == (1, 512, 1024, 256)
    assert events.flops.tolist() == [2.0 * 512 * 1024 * 256, 0, 0, 0, 0]
    assert events.bytes.tolist()[:4] == [2 * (512 * 256 + 256 * 1024 + 512 * 1024), 0, 3 * 4 * 512 * 1024, 0]
    assert events.dtype[:4] == ("bfloat16", "uint8", "float32", "")


def test_a_device_times_what_it_knows_and_keeps_the_rest(shaped):
    as_measured, on_h100 = (emu.replay(shaped, topology=FAST, device=device)[0] for device in (None, "h100"))
    assert as_measured.device == "NVIDIA H100"
    assert on_h100.device == "h100"
    rows = {each.name: each for each in on_h100.kernels}
    assert rows["triton_fused_3"].device_s is None
    assert rows["gemm_bf16_128x128"].measured_s == pytest.approx(45e-6)  # the median of two ranks
    assert rows["gemm_bf16_128x128"].device_s < 10e-6
    assert rows["gemm_bf16_128x128"].work == "product 1 x 512 x 1024 x 256"
    assert on_h100.step_time_s < as_measured.step_time_s
    totals = [each.total_s for each in on_h100.kernels]
    assert totals == sorted(totals, reverse=True)
    assert "2 of 8 kernels last as they were measured" in emu.replay(shaped, topology=FAST, device="h100").text()


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA GH200 480GB", ""),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA H1000", ""),
        ("Ascend910B", "ascend-910b-like"),
    ],
)
def test_the_device_of_a_profile_is_found_by_the_whole_name_of_a_product(device, name):
    """A name within a longer one, or with a longer number, is another product."""
    assert device_like(DEVICES, [device]) == name


def test_a_product_of_whole_numbers_has_no_work(tmp_path):
    """No device has a rate for it: it lasts as it was measured, and no table has it."""
    events = [step(1, 0, 900), operator("aten::mm", 4, 10, [[8, 8], [8, 8]], ["long int", "long int"])]
    events += [*kernel("gemm_int", 5, 30, 40, 1), *kernel("Memset", 20, 80, 2, 2, bytes=64)]
    write(tmp_path, "rank0.json", profile_of(0, events, world=1))
    found = emu.calibrate(profile=tmp_path)
    assert (len(found), found.unknown) == (1, 1)


def test_devices_of_a_profile_are_told_in_the_order_of_their_names(tmp_path):
    for rank, name in enumerate(("NVIDIA L40", "NVIDIA H100", "NVIDIA B200", "NVIDIA A100", "NVIDIA V100", "NVIDIA T4")):
        told = profile_of(rank, shaped_step(), world=6) | {"deviceProperties": [{"id": 0, "name": name}]}
        write(tmp_path, f"rank{rank}.json", told)
    assert seen_kernels(tmp_path).devices == tuple(f"NVIDIA {name}" for name in ("A100", "B200", "H100", "L40", "T4", "V100"))


def test_a_table_of_kernels_comes_from_the_profile(shaped):
    found = emu.calibrate(profile=shaped)
    product, added = (next(each for each in found if each.kernel.kernel == kind) for kind in (Kernel.PRODUCT, Kernel.OTHER))
    assert found.base.name == "h100"
    assert (product.seen, product.alone) == (2, True)
    assert product.kernel.seconds == pytest.approx(47e-6)  # with the kernel that adds its parts
    assert (product.low_s, product.high_s) == (pytest.approx(44.5e-6), pytest.approx(49.5e-6))
    assert added.kernel.bytes == 3 * 4 * 512 * 1024
    assert found.unknown == 2
    assert found.device.launch_overhead_s == pytest.approx(1e-6, abs=5e-6)
    again = emu.replay(shaped, topology=FAST, device=found.device)[0]
    took = {each.name: each.device_s for each in again.kernels}
    assert took["gemm_bf16_128x128"] == pytest.approx(47e-6 + found.device.launch_overhead_s)
    assert "1 x 512 x 1024 x 256" in found.text()


def test_kernels_beside_collectives_are_left_aside_where_others_are_known(tmp_path):
    add = [operator("aten::add", 22, 4, [[64], [64]], ["float", "float"]), *kernel("add", 23, 30, 6, 3)]
    beside = [operator("aten::add", 32, 4, [[64], [64]], ["float", "float"]), *kernel("add", 33, 105, 60, 4)]
    events = [step(1, 0, 900), *add, *beside, *collective("allreduce", 40, 100, 10, 5, 1000, 1000, [0, 1])]
    (seen,) = emu.calibrate("h100", profile=write(tmp_path, "rank0.json", profile_of(0, events)))
    assert (seen.seen, seen.alone) == (2, True)
    assert seen.kernel.seconds == pytest.approx(6e-6)


def test_operators_that_move_as_many_bytes_keep_times_of_their_own(tmp_path):
    """Each row has its operator's name, so that a device times an event by the operator that it is."""
    sizes = [[512, 1024], [512, 1024]]
    events = [step(1, 0, 900)]
    for name, start, lasts in (("add", 10, 6.0), ("mul", 40, 30.0)):
        events += [
            operator(f"aten::{name}", start, 4, sizes, ["float", "float"]),
            *kernel(f"vectorized_{name}", start + 1, start + 5, lasts, start),
        ]
    found = emu.calibrate("h100", profile=write(tmp_path, "rank0.json", profile_of(0, events, world=1)))
    told = {each.kernel.name: (each.kernel.dtype, each.kernel.bytes, each.kernel.seconds) for each in found}
    moved = 3 * 4 * 512 * 1024
    assert told == {"add": ("float32", moved, pytest.approx(6e-6)), "mul": ("float32", moved, pytest.approx(30e-6))}
    assert [each.kernel.name for each in found] == ["mul", "add"]  # what took longest in all comes first


@pytest.mark.parametrize(
    ("name", "dims", "inputs", "shape"),
    [
        ("aten::bmm", [[4, 8, 16], [4, 16, 32]], (), Shape(Kernel.PRODUCT, 4, 8, 32, 16)),
        ("aten::addmm", [[32], [8, 16], [16, 32]], (), Shape(Kernel.PRODUCT, 1, 8, 32, 16)),
        ("aten::_flash_attention_forward", [[2, 64, 8, 128]] * 3, [""] * 8 + ["True"], Shape(Kernel.CAUSAL, 16, 64, 64, 128)),
        ("aten::_flash_attention_backward", [[2, 64, 8, 128]] * 4, (), Shape(Kernel.ATTENTION_BACKWARD, 16, 64, 64, 128)),
        ("aten::_cudnn_attention_forward", [[2, 8, 64, 128]] * 3, (), Shape(Kernel.ATTENTION, 16, 64, 64, 128)),
    ],
)
def test_shapes_of_operators(name, dims, inputs, shape):
    found = work_of_operator(name, {"Input Dims": dims, "Input type": [BF16] * len(dims), "Concrete Inputs": inputs})
    assert found.shape == shape
    assert found.dtype == "bfloat16"


def test_a_product_is_in_tf32_where_its_kernel_says_so():
    work = work_of_operator("aten::mm", {"Input Dims": [[8, 16], [16, 4]], "Input type": ["float", "float"]})
    names = ("ampere_tf32_s1688gemm_tf32_128x128", "cutlass_80_tensorop_s1688gemm_256x64", "ampere_sgemm_128x64_nn")
    assert [work_of_launched(work, name).dtype for name in names] == ["tf32", "tf32", "float32"]


def test_copies_on_the_device_move_bytes_and_those_of_the_host_are_unknown():
    assert work_of_kernel("Memcpy DtoD (Device -> Device)", {"bytes": 100}).bytes == 200
    assert work_of_kernel("Memset (Device)", {"bytes": 100}).bytes == 100
    assert work_of_kernel("Memcpy HtoD (Pageable -> Device)", {"bytes": 100}) is None


@pytest.mark.parametrize("dims", [[[8, 16], [32, 16]], [[8, 16]], [[], []]])
def test_a_product_of_another_form_is_unknown(dims):
    assert work_of_operator("aten::mm", {"Input Dims": dims, "Input type": [BF16] * len(dims)}) is None


def test_lists_of_tensors_are_unknown_as_nothing_tells_their_dtype():
    assert work_of_operator("aten::_foreach_add_", {"Input Dims": [[[8], [8]]], "Input type": ["TensorList"]}) is None


def test_a_calibration_needs_shapes_and_a_known_device(tmp_path):
    plain = write(tmp_path / "plain", "rank0.json", profile_of(0, [step(1, 0, 900), *kernel("a", 1, 2, 3, 1)]))
    with pytest.raises(InputError, match=r"'rank0.json' tells the work of no kernel; profile a GPU with record_shapes=True"):
        emu.calibrate(profile=plain)
    shaped = write(tmp_path / "shaped", "rank0.json", {**profile_of(0, shaped_step()), "deviceProperties": [{"name": "XPU 9"}]})
    with pytest.raises(InputError, match="got 'XPU 9'; add"):
        emu.calibrate(profile=shaped)
