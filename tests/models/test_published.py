"""Each size of the catalogue has as many parameters as its authors print, to the digit that they print."""

import pytest

from emu.model.model import EMBEDDING, HEAD, MODELS
from tests.model.counts import part_parameters

# Billions; of the experts' models also those that one token sees.
PUBLISHED = {
    "llama2-7b": "6.738415616",  # the files published with the weights, as the rest of Llama
    "llama2-13b": "13.015864320",
    "llama2-70b": "68.976648192",
    "llama3-8b": "8.030261248",
    "llama3-70b": "70.553706496",
    "llama3.1-8b": "8.030261248",
    "llama3.1-70b": "70.553706496",
    "llama3.1-405b": "405.853388800",
    "gpt3-175b": "174.6",  # Narayanan et al., SC21, table 2
    "megatron-gpt-1.7b": "1.7",  # SC21, table 1
    "megatron-gpt-3.6b": "3.6",
    "megatron-gpt-7.5b": "7.5",
    "megatron-gpt-18b": "18.4",
    "megatron-gpt-39b": "39.1",
    "megatron-gpt-76b": "76.1",
    "megatron-gpt-145b": "145.6",
    "megatron-gpt-310b": "310.1",
    "megatron-gpt-530b": "529.6",
    "megatron-gpt-1t": "1008.0",
    "korthikanti-22b": "22",  # Korthikanti et al. (2022), table 3
    "korthikanti-175b": "175",
    "korthikanti-530b": "530",
    "mixtral-8x7b": "46.702792704",  # the files published with the weights
    "mixtral-8x22b": "141",  # Mistral AI, Cheaper, Better, Faster, Stronger (2024)
    "deepseek-v3": "671",  # DeepSeek-V3 Technical Report (2024), abstract
    "qwen3-30b-a3b": "30.5",  # the model cards of Qwen3
    "qwen3-235b-a22b": "235",
}
ACTIVE = {
    "mixtral-8x7b": "12.9",  # as above
    "mixtral-8x22b": "39",
    "qwen3-235b-a22b": "22",
}


def printed(parameters: int, as_in: str) -> str:
    """With as many digits as there."""
    return f"{parameters / 1e9:.{len(as_in.partition('.')[2])}f}"


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_those_that_the_authors_print(name):
    assert printed(MODELS.find(name).parameters(), PUBLISHED[name]) == PUBLISHED[name]


@pytest.mark.parametrize("name", sorted(ACTIVE))
def test_a_token_sees_as_many_as_the_authors_print(name):
    assert printed(MODELS.find(name).active_parameters(), ACTIVE[name]) == ACTIVE[name]


def test_deepseek_prints_active_parameters_without_the_input_embedding():
    """37 billion: DeepSeek-V3 Technical Report (2024), abstract."""
    found = MODELS.find("deepseek-v3")
    assert printed(found.active_parameters() - part_parameters(found, EMBEDDING), "37") == "37"


def test_the_printed_digits_of_these_are_cut_not_rounded():
    """1.1 trillion: InfiniteHBD paper (2025), appendix B; 314 billion: xAI, Open Release of Grok-1 (2024), of its layers.

    And 3.3 billion active ones of 3.353: the model card of Qwen3-30B-A3B.
    """
    assert int(MODELS.find("qwen3-30b-a3b").active_parameters() / 1e8) == 33
    assert int(MODELS.find("gpt-moe-1.1t").parameters() / 1e11) == 11
    grok = MODELS.find("grok1-314b")
    assert int((grok.parameters() - part_parameters(grok, EMBEDDING)) / 1e9) == 314
    assert 0.25 < (grok.active_parameters() / grok.parameters()) < 0.27  # "25 % of the weights active on a given token"


@pytest.mark.parametrize(
    ("name", "embedding", "rest"),
    [("nemotron4-15b", "3.2", "12.5"), ("nemotron4-340b", "9.4", "331.6")],  # arXiv 2402.16819, 2406.11704, section 2
)
def test_the_embeddings_of_nemotron_are_counted_apart(name, embedding, rest):
    """NVIDIA prints 3.2 of 3.146 billion parameters: rounded up."""
    found = MODELS.find(name)
    tables = found.vocab * found.hidden * 2
    assert 0 <= float(embedding) - tables / 1e9 < 0.1 or printed(tables, embedding) == embedding
    assert printed(found.parameters() - tables, rest) == rest
    assert part_parameters(found, HEAD) == found.vocab * found.hidden + 2 * found.hidden


def test_every_size_but_those_of_our_own_is_held_against_its_authors():
    ours = {name for name, _ in MODELS if name.endswith(("-tiny", "-small"))} | {"llama3.1-405b-mha", "korthikanti-1t"}
    apart = {"nemotron4-15b", "nemotron4-340b", "gpt-moe-1.1t", "grok1-314b"}
    assert {name for name, _ in MODELS} - ours - apart == PUBLISHED.keys()


def test_a_head_for_every_key_and_value_adds_two_products_a_layer():
    grouped, every = MODELS.find("llama3.1-405b"), MODELS.find("llama3.1-405b-mha")
    assert every.parameters() - grouped.parameters() == 126 * 2 * 16384 * (128 - 8) * 128
