"""A model of one's own sizes, from a file."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from emu.errors import InputError
from emu.model.model import ARCHITECTURES, MODELS, anywhere, find_model

SIZES = "layers = 2\nhidden = 64\nheads = 8\nkv_heads = 4\nffn = 192\nvocab = 256\nmax_seq = 1024\n"
LLAMA = 'architecture = "llama"\n' + SIZES
WHOLE = "hidden must be a whole number of 1 or more, got"
GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "own-model.md").read_text()


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The model of a file with this text."""
    monkeypatch.chdir(tmp_path)

    def written(text):
        (tmp_path / "own.toml").write_text(text)
        return find_model("own.toml")

    return written


def test_the_sizes_of_a_file_make_the_same_model_as_those_of_the_catalogue(read):
    own, filed = read(LLAMA.replace("layers = 2", "layers = 8")), MODELS.find("llama-tiny")
    assert (own.name, own.layers) == ("own.toml", filed.layers)
    assert own.parameters() == filed.parameters()
    assert [p.shape for p in own.build(8).parameters()] == [p.shape for p in filed.build(8).parameters()]


def test_a_number_may_be_whole_where_a_fraction_may_be_and_a_table_is_sizes_of_its_own(read):
    plain = read(LLAMA)
    table = "[stretch]\nfactor = 8\nslow = 1.0\nfast = 4.0\ncontext = 128\n"
    stretched = read('architecture = "llama"\nrope_theta = 10000\n' + SIZES + table)
    angles = [model.build(64).get_buffer("layers.0.attention.cos") for model in (plain, stretched)]
    assert not angles[0].equal(angles[1])


def test_a_name_is_a_model_of_the_catalogue():
    assert find_model("llama-tiny") == MODELS.find("llama-tiny")
    assert anywhere("llama-tiny") == "llama-tiny"
    assert Path(anywhere("own.toml")).is_absolute()


NEMOTRON = 'architecture = "nemotron"\nturned = 4.0\nlayers = 2\nhidden = 64\nheads = 4\nkv_heads = 4'
STRETCH = "[stretch]\nfactor = 8.0\nslow = 4.0\nfast = 4.0\ncontext = 64"
DEEPSEEK = """architecture = "deepseek"
layers = 4
dense_layers = {dense}
hidden = 64
heads = 4
query_rank = 32
key_rank = 16
turned = {turned}
plain = 8
value = 8
dense_ffn = 128
ffn = 32
vocab = 256
max_seq = 64
experts = 8
top_k = 2
groups = 2
top_groups = 1
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SIZES, "architecture must be the name of one in quotes, got None; known: deepseek, gpt"),
        ("architecture = 3", "architecture must be the name of one in quotes, got 3"),
        ('architecture = "lama"', "no architecture is called 'lama'; did you mean llama?"),
        ('architecture = "llama"\nlayer = 2', "unknown key 'layer'; did you mean layers?"),
        ('architecture = "llama"\nlayers = 2\nhidden = 64', "keys missing: heads, kv_heads, ffn, vocab, max_seq"),
        (LLAMA.replace("64", '"64"'), WHOLE + " '64'"),
        (LLAMA.replace("64", "0"), WHOLE + " 0"),
        (LLAMA.replace("64", "6.4"), WHOLE + " 6.4"),
        (LLAMA.replace("64", "true"), WHOLE + " True"),
        ('architecture = "llama"\nrope_theta = -1.0\n' + SIZES, "rope_theta must be a number above 0, got -1.0"),
        ('architecture = "llama"\nsource = 1\n' + SIZES, "source must be text in quotes, got 1"),
        ('architecture = "llama"\nstretch = 8\n' + SIZES, "stretch must be a table of factor, slow, fast, context, got 8"),
        (LLAMA + "[stretch]\nfaktor = 8", "unknown key 'faktor'; did you mean factor?"),
        (LLAMA.replace("heads = 8", "heads = 7"), "heads must be a divisor of hidden = 64, got 7"),
        (LLAMA.replace("= 4", "= 3"), "kv_heads must be a divisor of the 8 heads, got 3"),
        (LLAMA.replace("64", "72"), "rotary elements of a head must be even and at most the 9 of a head, got 9"),
        (NEMOTRON, "rotary elements of a head must be even and at most the 16 of a head, got 64"),
        (DEEPSEEK.format(dense=1, turned=7), "rotary elements of a head must be even and at most the 15 of a head, got 7"),
        (DEEPSEEK.format(dense=9, turned=8), "dense_layers must be at most the 4 layers, got 9"),
        (LLAMA + STRETCH, "slow must be above 0 and below fast, 4, got '4'"),
        ('architecture = "mixtral"\ntop_k = 9\n' + SIZES, "top_k must be at most the 8 experts, got 9"),
        ('architecture = "mixtral"\n' + SIZES.replace("192", "90"), "columns of an expert must be a multiple of 4"),
        ("architecture = ", "no TOML: "),
    ],
)
def test_what_makes_no_model_is_refused_in_one_line(read, text, message):
    with pytest.raises(InputError, match=f"^{re.escape('own.toml')}(, stretch)?: {re.escape(message)}") as raised:
        read(text)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_refused():
    with pytest.raises(InputError, match=r"^model: cannot read 'nowhere.toml': No such file or directory$"):
        find_model("nowhere.toml")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("groups = 3\ntop_groups = 1", "groups must be a divisor of the 8 experts, of 2 or more each, got 3"),
        ("groups = 8\ntop_groups = 4", "groups must be a divisor of the 8 experts, of 2 or more each, got 8"),
        ("groups = 4\ntop_groups = 5", "top_groups must be at most the 4 groups, with 3 experts or more, got 5"),
        ("groups = 4\ntop_groups = 1", "top_groups must be at most the 4 groups, with 3 experts or more, got 1"),
    ],
)
def test_groups_of_experts_must_hold_those_of_a_token(read, groups, message):
    sizes = "layers = 2\ndense_layers = 1\nhidden = 64\nheads = 8\nquery_rank = 32\nkey_rank = 16\nturned = 4\nplain = 8\n"
    more = "value = 8\ndense_ffn = 192\nffn = 32\nvocab = 256\nmax_seq = 64\nexperts = 8\ntop_k = 3\n"
    with pytest.raises(InputError, match=re.escape(message)):
        read('architecture = "deepseek"\n' + sizes + more + groups)


def test_the_guide_lists_every_architecture_with_its_sizes():
    rows = {}
    for line in re.findall(r"^\| `.*$", GUIDE, re.MULTILINE):
        name, needed, optional = (re.findall(r"`([\w-]+)`", cell) for cell in line.strip("|").split("|"))
        rows[name[0]] = (needed, optional)
    for name, architecture in ARCHITECTURES:
        sizes = fields(next(iter(architecture.configs.values())))
        needed = [f.name for f in sizes if f.default is MISSING]
        assert rows[name] == (needed, [f.name for f in sizes if f.default is not MISSING and f.name != "source"])
