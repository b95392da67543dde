"""An argument of the wrong kind is refused in one line, which names the argument and how it is written."""

import pytest

import emu
from emu.topology.topology import Topology

STEP = {"model": "llama3-8b", "plan": "tp=8,sp,dp=8,microbatch=1", "topology": "ub-mesh:rack", "global_batch": 64, "seq": 8192}


def refused(**changed: object) -> emu.InputError:
    with pytest.raises(emu.InputError) as caught:
        emu.estimate(**{**STEP, **changed})
    return caught.value


@pytest.mark.parametrize(
    ("argument", "value", "mend"),
    [
        ("algorithm", {"all_reduce": "ring"}, "write 'all_reduce=ring'"),
        ("algorithm", {"all_reduce": "ring", "dp.all_gather": "direct"}, "write ['all_reduce=ring', 'dp.all_gather=direct']"),
        ("algorithm", [{"all_reduce": "ring"}], "write 'all_reduce=ring'"),
        ("sweep", {"seq": [64, 128]}, "write 'seq=64,128'"),
        ("plan", {"tp": 8, "sp": True}, "write 'tp=8,sp'"),
        ("axes", 7, ""),
        ("seq", "8k", "write it as a number, such as 8192"),
        ("global_batch", "64", "write 64 without quotes"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_to_write(argument: str, value: object, mend: str) -> None:
    error = refused(**{argument: value})
    assert str(error).startswith(f"estimate: {argument} must be ")
    assert (error.field, error.mend) == (argument, mend)


def test_what_the_mend_of_a_mapping_says_is_taken() -> None:
    error = refused(algorithm={"all_reduce": "ring"})
    words = error.mend.removeprefix("write ").strip("'")
    assert emu.estimate(**STEP | {"algorithm": words}).algorithms["all_reduce"] == "ring"


@pytest.mark.parametrize(
    ("changed", "field", "mend"),
    [
        ({"plan": "tp=8,dp=8,sharding=zero3"}, "plan", "ZeRO-3 is sharding=fsdp"),
        ({"plan": "tp=8,dp=8,zero3"}, "plan", "ZeRO-3 is sharding=fsdp"),
        ({"plan": "tp=8,dp=8,sharding=zero2"}, "plan", "ZeRO-2 is not modelled; take zero1 or fsdp"),
        ({"plan": "tp=8,what"}, "plan", "e.g. dp=4,tp=4"),
        ({"topology": "servers:node=8"}, "node", "did you mean nodes?"),
        ({"topology": "switch"}, "n", "write switch:n=..."),
        ({"plan": "dp=256", "global_batch": 256}, "plan", "take dp=64, or a larger topology"),
        ({"seq": 2**17}, "seq", "take 8192, or a model with a larger max_seq"),
        ({"model": "Llama-3-8B"}, "model", "did you mean llama3-8b?"),
        ({"model": "meta-llama/llama3-8b"}, "model", "did you mean llama3-8b?"),
        ({"device": "H100"}, "device", "did you mean h100?"),
    ],
)
def test_an_error_has_an_argument_or_a_key_and_a_mend(changed: dict[str, object], field: str, mend: str) -> None:
    error = refused(**changed)
    assert error.field == field
    assert error.mend.startswith(mend)
    assert str(error).endswith(error.mend)


def test_a_plan_too_large_for_the_memory_has_the_nearest_that_fits_as_its_mend() -> None:
    error = refused(model="llama3-70b", plan="tp=8,dp=8")
    assert error.field == "plan"
    assert error.mend.startswith("the nearest that fits is tp=8,")
    words = error.mend.split()[5].rstrip(",")
    assert emu.estimate(**STEP | {"model": "llama3-70b", "plan": words}).step_time_s > 0


@pytest.mark.parametrize(
    ("argument", "thing"),
    [("topology", Topology), ("device", emu.Device)],
)
def test_a_sweep_says_how_an_object_is_given(argument: str, thing: type) -> None:
    given = emu.build_topology("ub-mesh:rack") if thing is Topology else emu.find_device("h100")
    error = refused(**{argument: given}, sweep="seq=64,128")
    assert error.field == argument
    assert f"{argument} must be a name or a file" in str(error)
    assert error.mend == f"register it by @emu.register.{argument}, and give its name"


@pytest.mark.usefixtures("own_models")
def test_a_sweep_takes_a_model_of_sizes() -> None:
    sizes = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 176, "vocab": 512, "max_seq": 128}
    tiny = {"architecture": "llama", "name": "swept", **sizes}
    swept = emu.estimate(**STEP | {"model": tiny, "plan": "dp=8", "sweep": "seq=64,128"})
    assert [row.step.tokens_per_s > 0 for row in swept] == [True, True]


def test_a_topology_is_not_drawn_by_its_name() -> None:
    with pytest.raises(emu.InputError, match=r"draw a topology by emu.draw\(emu.build_topology\('ub-mesh:board'\)\)"):
        emu.draw("ub-mesh:board")


def test_an_unknown_price_is_given_by_an_argument() -> None:
    with pytest.raises(emu.InputError, match="no price for 'rail switch'") as caught:
        emu.cost(topology="servers:nodes=8")
    assert (caught.value.field, caught.value.mend) == (
        "prices",
        "give prices a .toml file that has a price of it, or its name in `free`",
    )
