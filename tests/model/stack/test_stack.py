"""A stack in words: what is left out is the software's own, and what is none is refused with what is near."""

import pytest

from emu.errors import InputError
from emu.model.stack.software import MEGATRON
from emu.model.stack.stack import Precision, Stack, overheads, parse_stack, spell_stack


def test_what_is_left_out_is_as_the_software_has_it():
    own, other = Stack(), Stack(MEGATRON)
    assert (own.tp, own.dp, own.accumulation) == ("exposed", "overlapped", "unfused")
    assert (other.tp, other.dp, other.pp, other.cp, other.ep) == ("backward", "exposed", "interleaved", "overlapped", "exposed")
    assert (other.accumulation, other.attention, other.launch_s, other.alpha_s) == ("fused", "cudnn", 0, 0)


@pytest.mark.parametrize(
    "words",
    [
        "software=pytorch", "software=megatron", "software=megatron,tp=overlapped,dp=overlapped,attention=unfused",
        "software=megatron,accumulation=unfused,launch=14.6us,alpha=880ns,gradient=bfloat16,master=bfloat16",
        "software=megatron,dispatch=float8_e4m3fn", "software=megatron,alpha=880ns,bandwidth=0.8/0.9,library=nccl",
        "software=megatron,tp=chunked,attention=fa2,unfused=loss/router,sms=16,deferred=22",
        "software=megatron,fp8=delayed,fp8_gather=yes", "software=pytorch,compile=layers,fp8=row",
    ],
)  # fmt: skip
def test_a_stack_is_spelled_as_it_is_read(words):
    assert spell_stack(parse_stack(words)) == words
    assert parse_stack(spell_stack(parse_stack(words))) == parse_stack(words)


def test_a_word_may_stand_for_several():
    found = parse_stack("software=megatron,near", {"near": "launch=2us,alpha=1us"})
    assert (found.software.name, found.launch_s, found.alpha_s) == ("megatron", 2e-6, 1e-6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("software=megatrn", "no software of a stack is called 'megatrn'; did you mean megatron?"),
        (
            "software=megatron,tp=hidden",
            "no tp of a stack with software=megatron is called 'hidden'; known: backward, chunked, exposed, ",
        ),
        ("dp=exposed", "no dp of a stack with software=pytorch is called 'exposed'; known: overlapped"),
        ("software=megatron,atention=flash", "no setting of a stack is called 'atention'; did you mean attention"),
        ("software", "stack: a word must be NAME=VALUE, got 'software'; e.g. software=megatron,dp=overlapped"),
        ("tp=exposed,tp=exposed", "stack: tp is given twice in 'tp=exposed,tp=exposed'"),
        ("launch=5", "launch must be a time of 0 or more such as 500ns or 1.5us, got '5'"),
        ("software=megatron,attention=fa4", "no attention of a stack with software=megatron is called 'fa4'; did you mean fa"),
        ("software=megatron,unfused=los", "no unfused of a stack with software=megatron is called 'los'; did you mean loss"),
        ("unfused=loss", "no unfused of a stack with software=pytorch is called 'loss'; known: "),
        ("software=megatron,sms=-1", "stack: sms must be a whole number of 0 or more, got '-1'"),
        ("software=megatron,deferred=few", "stack: deferred must be a whole number of 0 or more, got 'few'"),
        ("gradient=float31", "no dtype is called 'float31'; did you mean float"),
        ("software=megatron,dispatch=float7", "no dtype is called 'float7'; did you mean float"),
        ("fp8=block", "no fp8 of a stack with software=pytorch is called 'block'; known: nothing, row, tensor"),
        (
            "fp8_gather=yes",
            "stack: fp8_gather must be no with fp8=nothing, got 'yes'; weights are gathered in FP8 with fp8=tensor",
        ),
        ("fp8=row,fp8_gather=yes", "stack: fp8_gather must be no with fp8=row, got 'yes'; weights are gathered"),
        ("dispatch=bfloat16", "stack: dispatch must be left out with software=pytorch, got 'bfloat16'; its rows travel"),
    ],
)
def test_a_stack_that_is_none_is_refused_with_what_is_near(words, message):
    with pytest.raises(InputError) as error:
        parse_stack(words)
    assert message in str(error.value)


def test_where_a_step_ran_only_what_calls_take_and_shares_of_bandwidth_count():
    found = overheads(parse_stack("launch=1us,alpha=2us,adding=3us,bandwidth=0.5/0.9,library=nccl"))
    assert found == Stack(launch_s=1e-6, alpha_s=2e-6, adding_s=3e-6, bandwidth=(0.5, 0.9), library="nccl")
    for words in ("software=megatron", "weight=float32"):
        told = "launch, alpha, adding, bandwidth and library alone, where what ran is timed"
        with pytest.raises(InputError, match=f"stack: words must be {told}, got .*{words}"):
            overheads(parse_stack(words))


def test_the_optimizer_keeps_a_copy_of_weights_of_another_dtype():
    """2 + 4 + 4 + 8 bytes a parameter, where nothing is sharded."""
    assert Precision().kept_bytes == 12
    assert Precision(weight="float32").kept_bytes == 8
