"""A model of Hugging Face's transformers, which nobody has changed for Emu, trains as in one process."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script

pytestmark = pytest.mark.skipif(not find_spec("transformers"), reason="needs transformers: pip install -e '.[hf]'")
SCRIPT = Path(__file__).parents[1] / "scripts" / "huggingface.py"
N = 4


@pytest.mark.parametrize(("name", "way"), [("llama", "ddp"), ("llama", "fsdp2"), ("gpt2", "ddp"), ("gpt2", "fsdp2")])
def test_a_model_has_the_losses_of_one_process(tmp_path, name, way):
    trace, code = run_script(SCRIPT, [name, way, str(tmp_path / "losses")], N)
    assert code == 0
    script = runpy.run_path(str(SCRIPT))
    batches = script["tokens"]().view(2, 2, N, 16).transpose(1, 2).flatten(1, 2)  # of a step: two rows of each rank, strided
    alone = script["train"](script["made"](name), [[batch] for batch in batches], torch.Tensor.item)
    assert torch.load(tmp_path / "losses") == pytest.approx(alone, rel=1e-4)
    assert trace.events_of(0).step.max() == len(alone)
    wanted = {"all_gather", "reduce_scatter"} if way == "fsdp2" else {"all_reduce"}
    assert wanted <= set(trace.events_of(0).name)


def test_its_step_on_1024_ranks_is_told(tmp_path):
    trace, code = trace_script(SCRIPT, ["llama", "fsdp2", str(tmp_path / "losses")], 1024)
    assert (code, trace.n_ranks) == (0, 1024)
