"""MSCCL programs out and in."""

import re
from collections import Counter, defaultdict
from itertools import islice

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.integers import check_integers
from emu.collective.msccl.xml_format import from_xml, to_xml
from emu.collective.operation import Operation, operation
from emu.collective.proof import ProofError, prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from tests.collective.msccl_programs import COLLS, WRITTEN, Machine, program


def smallest(found: Algorithm):
    """Its best shape of 4 ranks or as few more as it takes."""
    return next(shape for n in range(4, 17) for shape in found.shapes(n))


def sayable(found: Algorithm) -> bool:
    built = found.build(smallest(found))
    return not built.helpers and not built.shares


SAYABLE = [a for _, a in ALGORITHMS if a.operation in COLLS.values() and sayable(a)]
EACH = pytest.mark.parametrize("found", [pytest.param(a, id=a.key) for a in SAYABLE])


def columns(s: Schedule) -> list[list[int]]:
    return [c.tolist() for c in (s.round_column(), s.src, s.dst, s.slot, s.written_slot, s.reduce, s.channel)]


def exported(found: Algorithm, shape) -> tuple[Schedule, Operation, str]:
    built = found.schedule(shape)
    wanted = operation(found.operation, built.n_ranks)
    return built, wanted, to_xml(built, wanted, found.name)


def comes_back(found: Algorithm, n: int, most: int) -> None:
    for shape in list(found.shapes(n))[:most]:
        built, wanted, text = exported(found, shape)
        again, same = from_xml(text)
        assert same.digest() == wanted.digest()
        assert (again.n_slots, again.temps, columns(again)) == (built.n_slots, (), columns(built))


@EACH
@pytest.mark.parametrize("n", [1, 3, 4, 8])
def test_what_goes_out_comes_back_row_by_row(found: Algorithm, n: int):
    comes_back(found, n, 1)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("n", range(1, 17))
def test_what_goes_out_comes_back_row_by_row_at_every_n_to_16(found: Algorithm, n: int):
    comes_back(found, n, 3)


@EACH
def test_what_goes_out_does_its_operation_in_whatever_order_threadblocks_run(found: Algorithm):
    _, _, text = exported(found, smallest(found))
    assert all(Machine(text, seed).run() for seed in range(2))


@EACH
def test_without_its_rounds_it_is_proved_too_and_takes_no_more_of_them(found: Algorithm):
    built, wanted, text = exported(found, smallest(found))
    again, _ = from_xml(re.sub(r' emu_round="\d+"', "", text))
    prove(again, wanted, same_bits=False)
    assert again.n_rounds <= built.n_rounds
    assert again.n_rows == built.n_rows


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in WRITTEN.items()])
def test_a_program_written_elsewhere_is_proved(text: str):
    assert all(Machine(text, seed).run() for seed in range(5))
    schedule, wanted = from_xml(text)
    assert prove(schedule, wanted).uniform
    check_integers(schedule, wanted)


def test_a_copy_within_a_gpu_and_a_relay_take_no_row():
    schedule, _ = from_xml(WRITTEN["two-step"])
    assert not schedule.temps
    assert not (schedule.src == schedule.dst).any()


def test_what_is_received_added_and_sent_is_not_stored():
    text = WRITTEN["ring"].replace('"rrcs"', '"rrs"', 1)
    assert not Machine(text, 0).run()
    schedule, wanted = from_xml(text)
    with pytest.raises(ProofError, match="at the end: rank 0, slot 1 holds the value of rank 0, it must be"):
        prove(schedule, wanted)


def test_an_exchange_in_place_is_one_round():
    blocks = [[(1 - r, -1, ["s i0"]), (-1, 1 - r, ["rrc i0 @0.0"])] for r in (0, 1)]
    schedule, wanted = from_xml(program("allreduce", 2, 1, blocks))
    assert (schedule.n_rounds, schedule.n_rows) == (1, 2)
    prove(schedule, wanted)


def test_a_copy_that_is_added_to_leaves_its_source_as_it_was():
    blocks = [[(1 - r, -1, ["s i0"]), (-1, 1 - r, ["cpy i0 o0", "rrc o0"])] for r in (0, 1)]
    schedule, wanted = from_xml(program("allreduce", 2, 1, blocks, in_place=0))
    prove(schedule, wanted)
    assert schedule.temps == (0,)


def sends(**more) -> Schedule:
    return Schedule.build(2, 2, [Sends([0, 1], [1, 0], [0, 1], **more.pop("row", {}))], **more)


@pytest.mark.parametrize(
    ("schedule", "name", "why"),
    [
        (sends(helpers=1), "all_gather", "has helpers that begin at zero and add, which MSCCL XML cannot say"),
        (sends(shares=(1, 2)), "all_reduce", "has unequal shares, which MSCCL XML cannot say"),
        (sends(temps=(0,)), "all_gather", "has spare slots, which MSCCL XML cannot say"),
        (sends(row={"dst_slot": [1, 0]}), "all_gather", "has renamed slots, which MSCCL XML cannot say"),
        (sends(), "scatter", "operation must be one of all_reduce, .*, got 'scatter'; MSCCL XML has no root"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(schedule: Schedule, name: str, why: str):
    with pytest.raises(InputError, match=f"^msccl: .*{why}"):
        to_xml(schedule, operation(name, 2), "t")


def test_a_schedule_that_adds_to_what_nobody_wrote_does_not_go_out():
    """On a GPU it would be added to what lies in the output."""
    rank = np.arange(4)
    rounds = [Sends(rank, (rank + 1) % 4, (rank - t) % 4, reduce=True) for t in range(3)]
    with pytest.raises(ProofError, match="proof: round 0: rank 1, slot 0 holds nothing, and what rank 0 sends is added to it"):
        to_xml(Schedule.build(4, 4, rounds), operation("all_gather", 4), "t")


def test_a_schedule_that_does_something_else_does_not_go_out():
    with pytest.raises(ProofError, match="rank 1, slot 0 holds nothing, it must be the value of rank 0"):
        to_xml(Schedule.build(2, 2, [Sends(1, 0, 1)]), operation("all_gather", 2), "t")


@EACH
def test_no_step_that_goes_out_adds_to_what_nobody_wrote(found: Algorithm):
    """A machine whose chunks begin with noise: a multiset of what no rank has."""
    for shape in islice(found.shapes(8), 2):
        machine = Machine(exported(found, shape)[2], seed=0)
        machine.chunks = defaultdict(lambda: Counter({"noise": 1}))
        assert machine.run()


AT = "msccl: gpu 0, threadblock 0, step 0: "
PAIR = program("allreduce", 2, 1, [[(1, -1, ["s i0"]), (-1, 1, ["rrc i0 @0.0"])], [(0, 0, ["s i0", "rrc i0"])]])


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("<algo", "<", "msccl: the file is no XML: .*line 1"),
        ('"allreduce"', '"broadcast"', "msccl: coll must be one of allreduce, .*, got 'broadcast'; rooted"),
        ('ngpus="2"', 'ngpus="3"', "msccl: gpu ids must be 0..2, each once"),
        ('nchunksperloop="1"', "", "msccl: nchunksperloop must be a whole number of 1..8388608, got 'nothing'"),
        ('<tb id="1"', '<tb id="0"', r"msccl: gpu 0: threadblock ids must be each once"),
        ('send="1"', 'send="0"', "msccl: gpu 0, threadblock 0: peer must be another GPU, got 0"),
        ('send="1"', 'send="-1"', AT + "type must be one that its threadblock has a peer for, got 's'"),
        ('type="s"', 'type="jump"', AT + "type must be one of .*, got 'jump'"),
        ('<step s="0"', '<step s="4"', AT + r"s must be a whole number of 0..0, got '4'"),
        ('srcoff="0"', 'srcoff="x"', AT + "srcoff must be a whole number of 0..16777215, got 'x'"),
        ('srcbuf="i"', 'srcbuf="q"', AT + "srcbuf must be i, o or s, got 'q'"),
        ('cnt="1"', 'cnt="2"', AT + "srcoff and cnt must be within the 1 chunks of i, got '0 and 2'"),
        (
            'depid="0"',
            'depid="-1"',
            r"msccl: gpu 0, threadblock 1, step 0: i\[0\] is also used by gpu 0, threadblock 0, step 0",
        ),
        ('deps="0"', 'deps="7"', r"threadblock 1, step 0: depid and deps must be a threadblock of its GPU .*, got \(0, 7\)"),
        ('depid="-1" deps="-1"', 'depid="0" deps="0"', AT + "it can never start, since it waits for itself through others"),
        ('type="s"', 'type="nop"', "gpu 1, threadblock 0, step 1: gpu 0 sends nothing for it on channel 0"),
        ('type="rrc"', 'type="nop"', AT.replace("gpu 0", "gpu 1") + "what it sends to gpu 0 is never received"),
    ],
)
def test_a_malformed_program_is_one_line_that_says_where(old: str, new: str, error: str):
    assert old in PAIR
    with pytest.raises(InputError, match=error) as refused:
        from_xml(PAIR.replace(old, new, 1))
    assert "\n" not in str(refused.value)


def test_xml_of_another_kind_is_refused():
    with pytest.raises(InputError, match="msccl: outermost element must be <algo>, got 'tree'"):
        from_xml("<tree/>")


@pytest.mark.parametrize(
    ("blocks", "error"),
    [
        ([[(-1, -1, ["re i0 i0"])]], "step 0: it adds i.0. to itself"),
        ([[(-1, -1, ["cpy s0 i0"])]], r"step 0: it reads s\[0\], which nothing wrote"),
        ([[]], "msccl: gpu 0: output chunk 0 is never written; it must be slot 0"),
    ],
)
def test_a_program_without_meaning_is_refused(blocks: list, error: str):
    with pytest.raises(InputError, match=error):
        from_xml(program("allreduce", 1, 1, blocks, scratch=1, in_place=0))


@pytest.mark.parametrize(
    ("adding", "spot"),
    [(["rrc o0"], r"o\[0\]"), (["rrs o0"], r"o\[0\]"), (["r s0", "re s0 o0"], r"o\[0\]"), (["rrc s1 o0"], r"s\[1\]")],
)
def test_a_program_that_adds_to_what_nobody_wrote_is_refused(adding: list[str], spot: str):
    """An all_gather out of place whose second GPU adds what the first sends."""
    sends_on = adding == ["rrs o0"]
    first = [(1, -1, ["s i0"]), *([(-1, 1, ["r o1"])] if sends_on else [])]
    gpus = [first, [(0 if sends_on else -1, 0, adding)]]
    with pytest.raises(InputError, match=f"msccl: gpu 1, .*: it reads {spot}, which nothing wrote"):
        from_xml(program("allgather", 2, 2, gpus, scratch=2, in_place=0))


def test_rounds_that_cannot_be_are_refused():
    _, _, text = exported(next(a for a in SAYABLE if a.key == "all_gather/ring"), 3)
    assert 'emu_round="1"' in text
    with pytest.raises(InputError, match="emu_round must be 1 or more, got 0; leave emu_round out"):
        from_xml(text.replace('emu_round="1"', 'emu_round="0"'))


def test_a_message_in_flight_while_its_source_is_overwritten_is_refused():
    """GPU 1 takes what was sent first after what could only be sent later."""
    first = [(1, -1, ["s i0"]), (-1, 1, ["r i0 @0.0"]), (1, -1, ["s i0 @1.0"], 1)]
    second = [(0, -1, ["s i0"]), (-1, 0, ["r s0"], 1), (-1, 0, ["r s0 @1.0"])]
    with pytest.raises(InputError, match="what it receives is in flight while its source is overwritten; receive it before"):
        from_xml(program("allreduce", 2, 1, [first, second], scratch=1))
