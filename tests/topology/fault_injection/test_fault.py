"""The language of faults: what is written is what is meant, and what cannot be is one line with the nearest that can."""

import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import Fault, check_faults, parse_fault
from emu.topology.fault_injection.fault_script import faults_of, job_steps, read_faults

BOARD = build_topology("ub-mesh:board")
STAR = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")


@pytest.mark.parametrize(
    "text",
    [
        "link 3-7 at step 2",
        "npu 5 at step 3",
        "nic 4 slow 0.5 from step 3 to 5",
        "rank 2 kill at step 3",
        "switch 64 from step 1 to 1",
        "link 3-7 at 1.5us",
        "link 3-7 slow 0.25 from 1us to 2us",
        "npu 5 slow 1 at step 9",
    ],
)
def test_a_fault_is_written_as_it_was_read(text):
    assert str(parse_fault(text)).replace(" us", "us") == text


def test_a_fault_holds_from_its_first_step_to_its_last():
    fault = parse_fault("link 3-7 from step 3 to 5")
    assert fault == Fault("link", (3, 7), 3, 5)
    assert [step for step in range(1, 8) if fault.holds(step)] == [3, 4, 5]
    assert all(parse_fault("npu 1 at step 2").holds(step) for step in (2, 3, 99))
    assert [step for step in range(1, 8) if parse_fault("rank 1 kill at step 4").holds(step)] == [4]
    assert [t for t in (0, 9, 10, 19, 20) if parse_fault("npu 1 from 10fs to 20fs").holds(t)] == [10, 19]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("link 3 at step 2", "the link of 'link 3 at step 2' must be two different nodes"),
        ("link 3-3 at step 2", "two different nodes"),
        ("npu 3-4 at step 2", "one number, such as npu 3"),
        ("gpu 3 at step 2", "PART is link A-B"),
        ("npu 3", "PART at step S"),
        ("npu 3 at step 0", "a whole number of 1 or more, got '0'; take 1"),
        ("npu 3 at 2", "a step or a time with its unit, got '2'; take `step 2`"),
        ("npu 3 slow 0 at step 2", "1e-09 to 1, got '0'; take 0.01, or leave `slow` out"),
        ("npu 3 slow 1e-15 at step 2", "1e-09 to 1, got '1e-15'; take 0.01, or leave `slow` out"),
        ("link 3-7 from 3s to 3s", "later than its beginning, 3s, got '3s'"),
        ("npu 3 slow 1.5 at step 2", "1e-09 to 1, got '1.5'; take 1, the nearest"),
        ("npu 3 slow half at step 2", "1e-09 to 1, got 'half'; such as 0.5"),
        ("npu 3 slow nan at step 2", "1e-09 to 1, got 'nan'"),
        ("npu 3 kill at step 2", "a rank is killed, a part fails"),
        ("rank 3 at step 2", "a rank is killed, a part fails"),
        ("npu 3 from step 4 to 2", "no earlier than its beginning, step 4, got '2'"),
        ("npu 3 from step 4 to 2us", "both at steps or both at times"),
    ],
)
def test_what_is_no_fault_is_one_line(text, said):
    with pytest.raises(InputError) as caught:
        parse_fault(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("topology", "text", "said"),
    [
        (BOARD, "npu 8 at step 2", "0..7 of ub-mesh:board, got 8; take 7, the nearest"),
        (BOARD, "rank 4 kill at step 2", "0..3 of the job, got 4; take 3, the nearest"),
        (BOARD, "link 0-8 at step 2", "0..7 of ub-mesh:board, got 8; take 7, the nearest"),
        (STAR, "link 0-1 at step 2", "NPU 0 has links to 4, got '0-1'; take 0-4, the nearest"),
        (STAR, "switch 3 at step 2", "4..4 of switch:n=4,bandwidth=50GB/s,latency=500ns, got 3; take 4, the nearest"),
        (BOARD, "switch 3 at step 2", "has none; name a link or an NPU"),
        (BOARD, "nic 3 at step 2", "has no NIC, as no switch joins it; name a link of it, such as link 3-0"),
        (BOARD, "npu 3 at step 7", "1..6, the steps of the job, got 7; take 6"),
        (BOARD, "npu 3 at 2us", "a step, as there is no clock here"),
    ],
)
def test_a_fault_of_what_is_not_there_names_the_nearest_that_is(topology, text, said):
    with pytest.raises(InputError) as caught:
        check_faults([parse_fault(text)], topology, 4, 6)
    assert said in str(caught.value)


def test_faults_come_from_a_file_too(tmp_path):
    file = tmp_path / "faults.toml"
    file.write_text('faults = ["link 0-1 at step 2", "npu 3 slow 0.5 from step 3 to 4"]\n')
    texts = read_faults([str(file), "npu 2 at step 1"])
    assert list(map(str, faults_of(texts, BOARD, 4, 6))) == list(texts)
    assert job_steps(texts) == 5


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("faults = 3", "must be texts"),
        ("faults = []", "must be texts"),
        ('fault = ["npu 2 at step 1"]', "did you mean faults?"),
        ('faults = ["npu two at step 1"]', "PART at step S"),
        ("faults = [", "no TOML"),
    ],
)
def test_a_file_that_has_no_faults_is_one_line(tmp_path, written, said):
    file = tmp_path / "faults.toml"
    file.write_text(written)
    with pytest.raises(InputError, match=said.replace("?", r"\?")):
        read_faults([str(file)])


def test_random_faults_are_drawn_by_their_rates_and_their_seed():
    texts = read_faults(["random link=0.05 npu=0.02 slow=0.5 repair=2 seed=3"])
    drawn = faults_of(texts, BOARD, 8, 40)
    assert drawn == faults_of(texts, BOARD, 8, 40)
    assert drawn != faults_of(read_faults(["random link=0.05 npu=0.02 slow=0.5 repair=2 seed=4"]), BOARD, 8, 40)
    check_faults(drawn, BOARD, 8, 40)
    links = [fault for fault in drawn if fault.part == "link"]
    assert 28 * 40 * 0.05 / 2 < len(links) < 28 * 40 * 0.05 * 2
    assert 0.25 < sum(fault.share > 0 for fault in drawn) / len(drawn) < 0.75
    assert all(fault.last == fault.first + 1 for fault in drawn)
    assert [parse_fault(str(fault)) for fault in drawn] == list(drawn)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("random seed=3", "random with a rate of link, npu, switch, rank"),
        ("random link=2", "a share of 0 to 1, got '2'; take 1"),
        ("random links=0.1", "did you mean link"),
        ("random link=0.1 link=0.2", "given twice"),
        ("random link=0.1 seed=x", "a whole number of 0 or more"),
        ("random link=0.1 every=0s", "every of .* must be a time above 0, got '0s'; such as 10ms"),
        ("random link=0.1 every=5s steps=0", "a whole number of 1 to 100000, got '0'"),
        ("random link=0.1 steps=999999999", "a whole number of 1 to 100000, got '999999999'"),
    ],
)
def test_random_faults_that_cannot_be_are_one_line(text, said):
    with pytest.raises(InputError, match=said):
        read_faults([text])


def test_a_part_that_flaps_has_a_fault_for_each_time_that_it_is_down():
    """A flap of 100 ms every 2 s, from 10 s to before 15 s, comes three times."""
    found = faults_of(["link 3-7 flaps 100ms every 2s from 10s to 15s"], BOARD, 8, 1, clock=True)
    assert list(map(str, found)) == [f"link 3-7 from {10 + 2 * i}s to {10 + 2 * i}.1s" for i in range(3)]
    slow = faults_of(["npu 3 slow 0.5 flaps 1s every 3s from 1s to 1.5s"], BOARD, 8, 1, clock=True)
    assert list(map(str, slow)) == ["npu 3 slow 0.5 from 1s to 1.5s"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("link 3-7 flaps 2s every 2s from 10s to 15s", "below the 2s"),
        ("link 3-7 flaps 2s every 0s from 10s to 15s", "every of .* must be a time above 0, got '0s'"),
        ("link 3-7 flaps 1s every 2s from 10 to 15s", "from of 'link 3-7 flaps 1s every 2s from 10 to 15s' must be a time"),
        ("link 3-7 flaps 1s every 2s from 10s to 15", "to of .* must be a time"),
        ("link 3-7 flaps 1s every 2s from step 1 to 15", "from a time to a time"),
        ("rank 3 kill flaps 1s every 2s from 1s to 2s", "must be of a link"),
        ("link 3-7 flaps 1us every 2us from 0s to 1000s", "at most 10000"),
        ("link 3-7 flaps often", "PART at step S"),
    ],
)
def test_a_flap_that_cannot_be_is_refused_in_one_line(text, said):
    """Each message says what is wrong with the text."""
    with pytest.raises(InputError, match=said):
        read_faults([text])
