"""The command `emu design` and `emu.design`: the answer beside plans at every point, what it tells, and what it refuses."""

from pathlib import Path

import pytest

import emu as library
from emu.errors import InputError
from emu.study.faults.waste import machine_of, waste_of
from emu.topology.catalogue import build_topology
from launch.front import inputs
from launch.front.design_space import amount_of, availability_by, devices_of, space_of, spread
from tests.launch.answers import without_wall
from tests.launch.repeated import replaced

LINK = "latency=500ns"
BOOK = """
source = "offers of May"
[any]
free = ["NPU", "link*"]
[any.parts]
cable = { dollars = [100, 300], watts = 2 }
switch = { dollars = [1000, 9000], watts = 500 }
"""
JOB = {"model": "llama-tiny", "global_batch": 8, "seq": 64, "stack": "software=megatron"}
FEW = "recompute=none,sharding=ddp,microbatch=1,pp=1,cp=1"
SPACE = (f"switch:n=4,bandwidth={{10GB/s,50GB/s}},{LINK}", f"torus:dims=2x2,bandwidth={{10GB/s,50GB/s}},{LINK}")
NPU = ("h100:dollars=30000,watts=700", "h800:dollars=26000,watts=650")
WORDS = ("design", "--model", "llama-tiny", "--npus", "2", "--global-batch", "8", "--seq", "64", "--plan", FEW)
WORDS += ("--stack", "software=megatron")
BOARD = ("--topology", "ub-mesh:board:lane_rate={7GB/s,14GB/s}")


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("book.toml").write_text(BOOK)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The design of a small space."""
    folder = tmp_path_factory.mktemp("design")
    (folder / "book.toml").write_text(BOOK)
    asked = {"npus": "2,4", "topology": SPACE, "device": ["h100", "h800"], "npu": NPU, "plan": FEW, "cache": folder}
    return library.design(prices=folder / "book.toml", faults="tp=2,rate=2%,draws=50", **asked, **JOB), asked, folder


def beats(one, other) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def all_points(asked, book):
    """Every point by `emu plan` and `emu cost`, with nothing of the design: tokens/s, dollars, watts, availability."""
    every = {}
    for topology in (text for words in SPACE for text in spread(words)):
        paid = library.cost(topology=topology, prices=book)[0]
        share = library.faults(topology=topology, tp=2, rate="2%", draws=50)[0].waste.availability
        for device, (dollars, watts) in {"h100": (30000, 700), "h800": (26000, 650)}.items():
            for npus in (2, 4):
                sought = {"npus": npus, "device": device, "plan": FEW, "cache": asked["cache"], "top": 1}
                plan = library.plan(topology=topology, **sought, **JOB).fastest
                of = npus / paid.cost.npus
                price = (paid.cost.dollars + (paid.high or paid).cost.dollars) / 2 * of + npus * dollars
                power = paid.cost.watts * of + npus * watts
                every[topology, device, npus] = (plan.tokens_per_s, -round(price, 6), -round(power, 6), share)
    return every


def test_the_front_is_that_of_plans_at_every_point(found):
    answer, asked, folder = found
    every = all_points(asked, folder / "book.toml")
    front = {name for name, own in every.items() if not any(beats(other, own) for other in every.values())}
    assert {(row.topology, row.device, row.npus) for row in answer} == front
    assert answer.table.points == len(every) == 16
    assert answer.table.timed < 16
    for row in (*answer, *answer.table.beaten):
        tokens, dollars, watts, share = every[row.topology, row.device, row.npus]
        assert (row.tokens_per_s, row.dollars, row.watts) == pytest.approx((tokens, -dollars, -watts))
        assert row.availability == share
    best = max(every, key=lambda name: every[name][0] / -every[name][1])
    assert (answer[0].topology, answer[0].device, answer[0].npus) == best
    for row in answer.table.beaten:
        by = answer[row.beaten_by - 1]
        assert beats(every[by.topology, by.device, by.npus], every[row.topology, row.device, row.npus])


def test_the_report_gives_reasons_prices_and_what_was_searched(found):
    answer, _, _ = found
    text = answer.text()
    assert "1: the most tokens/s a dollar" in text
    assert "beside 1" in text
    assert "switch, 1000 to 9000 $: " in text
    assert f"16 points: {answer.table.timed} timed ({answer.table.steps} steps)" in text
    assert "half to twice" in text
    assert {*answer.to_dict()} == {"design", "assumptions"}
    assert len(answer.to_pandas()) == len(answer)
    assert answer.plot().get_xlabel() == "price (k$)"


def test_an_interrupted_design_goes_on_with_what_it_has_timed(found, monkeypatch):
    answer, asked, folder = found
    for name in ("find_best_plan", "least_step_s"):
        monkeypatch.setattr(f"emu.study.design.survey.{name}", None)  # nothing is worked out again
    again = library.design(prices=folder / "book.toml", faults="tp=2,rate=2%,draws=50", **asked, **JOB)
    assert without_wall(again.to_dict()) == without_wall(answer.to_dict())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*BOARD, "--budget", "1$"),
            "design: --budget must be 1,259 $ or more, as the cheapest point, ub-mesh:board:lane_rate=7GB/s, takes",
        ),
        ((*BOARD, "--power", "1W", "--npu", "dollars=1,watts=700"), "design: --power must be 1,40"),
        ((*BOARD, "--budget", "-5$"), "design: --budget must be an amount above 0, such as 10M$ or 500k$, got '-5$'"),
        ((*BOARD, "--budget", "5MW"), "design: --budget must be an amount above 0, such as 10M$ or 500k$, got '5MW'"),
        ((*BOARD, "--npu", "dollars=-1"), "design: --npu must be dollars=30000,watts=700, or one of them, of 0 or more, got"),
        ((*BOARD, "--npu", "h800:dollars=1"), "design: --npu must be of h100, got 'h800:dollars=1'"),
        (
            (*BOARD, "--npu", "dollars=1", "--npu", "dollars=2"),
            "design: --npu has two prices of all devices; leave dollars=2 out",
        ),
        (
            (*BOARD, "--topology", "ub-mesh:board:lane_rate=14GB/s"),
            "design: --topology has ub-mesh:board:lane_rate=14GB/s twice; leave one of them out",
        ),
        ((*BOARD, "--device", "h100,,h800"), "design: --device must be names of devices, such as h100 or h100,h800, got"),
        (
            (*BOARD, "--faults", "tp=16,rate=1%"),
            "design: no point has a step; the first: ub-mesh:board:lane_rate=7GB/s: NPUs of a group must be 1..8, got 16",
        ),
        (
            ("--topology", "switch:n=4,bandwidth=1GB/s,latency=1us", "--prices", "free.toml"),
            "design: prices must be above 0 $ for each point, got 0 $ for switch:n=4,bandwidth=1GB/s,latency=1us; give --npu",
        ),
        ((*BOARD, "--years", "-1"), "design: --years must be a number of 0 or more, got '-1'"),
        ((*BOARD, "--npus", "0"), "design: --npus must be whole numbers of 1 or more, such as 64 or 32,64,128, got '0'"),
        ((*BOARD, "--device", "h100,h1000"), "no device is called 'h1000'"),
        ((*BOARD, "--device", "h100,h100"), "design: --device must be different devices, got 'h100, h100'"),
        ((*BOARD, "--faults", "mtbf=3y"), "--faults: tp is missing, the NPUs of a group; give tp=8"),
        ((*BOARD, "--faults", "tp=8,mtfb=3y"), "--faults: unknown setting 'mtfb'; did you mean mtbf?"),
        ((*BOARD, "--faults", "tp=8,mtbf=3y"), "faults: --mtbf or --afr, and --mttr go together; give both or none"),
        (
            (*BOARD, "--npus", "16"),
            "design: no point has a step; the first: ub-mesh:board:lane_rate=7GB/s: NPUs must be 16 or more",
        ),
        (
            ("--topology", "ub-mesh:board:lane_rate={}"),
            "--topology: values of lane_rate must be different and none of them empty",
        ),
        (
            ("--topology", "ub-mesh:board:lane_rat={7GB/s}"),
            "ub-mesh:board: unknown setting 'lane_rat'; did you mean lane_rate?",
        ),
        (("--topology", "ub-mesh:{board}"), "design: --topology must be such that braces hold the values of a setting"),
        (("--topology", "switch:n=4,bandwidth={1GB/s},latency=1us"), "price book emu: no price for 'switch' (one switch with"),
        (
            ("--topology", "switch:n=4,bandwidth=1GB/s,latency=1us", "--prices", "bad.toml"),
            "bad.toml, [any], 'cable': dollars must",
        ),
        ((*BOARD, "--plan", "dp=3"), "design: no point has a step; the first: plan: npus must be such that llama-tiny"),
    ],
)
def test_bad_input_is_one_line(words, said, emu):
    Path("bad.toml").write_text(BOOK.replace("[100, 300]", "-1"))
    Path("free.toml").write_text(BOOK.replace("[1000, 9000]", "0").replace("[100, 300]", "0"))
    done = emu(*replaced(WORDS, *words))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"emu: {said}"), done.err
    assert len(done.err.splitlines()) == 1


def test_braces_stand_for_all_their_values():
    assert [*spread("torus:dims={4x4,8x8},bandwidth={25GB/s..100GB/s:3},latency=1us")] == [
        f"torus:dims={dims},bandwidth={rate}GB/s,latency=1us" for dims in ("4x4", "8x8") for rate in (25, 50, 100)
    ]
    assert [*spread("nvl:72")] == ["nvl:72"]


def test_a_space_has_a_topology():
    with pytest.raises(InputError, match="topology must be one topology or more, such as nvl:72"):
        space_of((), ["h100"], 8)


def test_amounts_have_units():
    with pytest.raises(InputError, match="--budget must be an amount above 0"):
        amount_of(True, "--budget", "$")
    assert amount_of("10M$", "--budget", "$") == amount_of(1e7, "--budget", "$") == 1e7
    assert amount_of("2.5kW", "--power", "W") == 2500
    assert amount_of(None, "--power", "W") is None


@pytest.mark.parametrize("words", [("h800:dollars=24000", "dollars=30000"), ("dollars=30000", "h800:dollars=24000")])
def test_the_price_of_one_device_comes_before_that_of_all(words):
    found = devices_of("h100,h800", words, 0.0, 0.1, inputs.stack_of("software=megatron"))
    assert {name: of.terms.npu.dollars for name, of in found.items()} == {"h100": 30000, "h800": 24000}


def test_the_availability_of_machines_of_several_sizes_is_that_of_each_alone():
    several = availability_by("tp=8,rate=2%,draws=30")
    for word in ("nvl:72", "nvl:36", "rail-only:dims=2x4", "railx:torus:m=4,n=9,nodes=2x2", "railx:torus:m=4,n=3,nodes=2x2"):
        for _ in range(2):
            machine = machine_of(build_topology(word), 2880)
            alone = waste_of(machine, 8, availability_by("tp=8,rate=2%,draws=30").faults(machine.npus).states)
            assert several(build_topology(word)) == alone.availability


def test_a_topology_without_room_for_a_group_is_left_out_and_told(tmp_path):
    asked = {"npus": 2, "topology": (f"switch:n=4,bandwidth=10GB/s,{LINK}", f"switch:n=2,bandwidth=10GB/s,{LINK}")}
    answer = library.design(prices="book.toml", faults="tp=4,rate=2%,draws=5", plan=FEW, cache=tmp_path, **asked, **JOB)
    assert [row.topology for row in answer] == [asked["topology"][0]]
    assert answer.table.refused == 1
    assert "NPUs of a group must be 1..2, got 4" in answer.text()


def test_a_model_that_fits_no_device_is_refused_with_the_memory_that_is_missing(tmp_path):
    few = {"plan": "recompute=full,microbatch=1", "global_batch": 1, "seq": 64, "device": "h100"}
    with pytest.raises(InputError, match=r"no plan of 1 NPUs fits llama3-8b into the .* more than there is \(optimizer state"):
        library.design(model="llama3-8b", npus=1, topology="fat-tree:radix={4,8}", cache=tmp_path, **few)


def test_the_page_has_the_reasons_in_sentences(found):
    blocks = [block for section in found[0].page().sections for block in section.blocks]
    assert any("1: the most tokens/s a dollar" in str(block) and "beside 1" in str(block) for block in blocks)


@pytest.mark.parametrize("words", ["servers=100", "days=30d", "draws=5", "rate=1%,npus-per-server=4"])
def test_settings_of_faults_without_effect_are_refused_as_of_emu_faults(words):
    with pytest.raises(InputError, match=r"^--faults: "):
        availability_by(f"tp=8,{words}")
