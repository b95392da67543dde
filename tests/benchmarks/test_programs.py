"""The driver that runs programs of other repositories: its changes, its recorder, and its comparison, on a program of ours."""

import json

import pytest

from benchmarks.programs.__main__ import MANIFEST
from benchmarks.programs.compare import compare
from benchmarks.programs.manifest import Change, ManifestError, Program, read
from benchmarks.programs.place import prepare, run, with_record

TRAINS = '''"""A program."""
from __future__ import annotations

import sys
import torch, torch.distributed as dist
STEPS = 5

dist.init_process_group("nccl")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).cuda(), device_ids=[dist.get_rank()])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(STEPS):
    loss = model(torch.rand(2, 4, device="cuda")).square().sum()
    loss.backward()
    optimizer.step()
    print(f"step {step}: loss {loss.item():.6f} of {sys.argv[1]}")
'''


def program(**what):
    plain = {
        "name": "ours",
        "repository": "we/ours",
        "commit": "",
        "licence": "",
        "path": "train.py",
        "sha256": "",
        "uses": "DDP",
    }
    return Program(**{**plain, "words": ("words",), **what})


@pytest.fixture
def checkouts(tmp_path):
    (tmp_path / "we" / "ours").mkdir(parents=True)
    (tmp_path / "we" / "ours" / "train.py").write_text(TRAINS)
    return tmp_path


def test_a_program_does_the_same_on_gloo_and_on_threads_and_a_difference_is_seen(checkouts, tmp_path):
    ours, records = program(changes=(Change("size", "STEPS = 5", "STEPS = 2"),)), {}
    for place in ("gloo", "threads"):
        root = tmp_path / place / "root"
        ended = run(ours, place, prepare(ours, checkouts, tmp_path, root), root, tmp_path)
        assert ended.ok, ended.said
        records[place] = ended.record
    same = compare(records["gloo"], records["threads"], 2)
    assert (same.equal, same.steps, same.lines) == (True, 4, 4)
    record = records["threads"] / "1.jsonl"
    told = [json.loads(line) for line in record.read_text().splitlines()]
    told[-2] |= {"bits": "other", "norms": [2 * norm for norm in told[-2]["norms"]]}
    record.write_text("".join(json.dumps(each) + "\n" for each in told))
    differs = compare(records["gloo"], records["threads"], 2)
    assert (differs.equal, differs.same_steps, differs.apart) == (False, 3, pytest.approx(0.5))


def test_a_change_that_does_not_fit_and_another_version_are_refused(checkouts, tmp_path):
    with pytest.raises(ManifestError, match=r"train.py: 'STEPS = 7' must stand there 1 times, found 0"):
        prepare(program(changes=(Change("size", "STEPS = 7", ""),)), checkouts, tmp_path, tmp_path / "a")
    with pytest.raises(ManifestError, match=r"train.py is another version \([0-9a-f]{4}\); fetch we/ours at 7"):
        prepare(program(sha256="none", commit="7"), checkouts, tmp_path, tmp_path / "b")
    with pytest.raises(ManifestError, match=r"gone.py is missing; fetch we/ours"):
        prepare(program(path="gone.py"), checkouts, tmp_path, tmp_path / "c")


@pytest.mark.parametrize("first", ["import os\n", "@f\ndef g(): pass\n", "if True:\n    pass\n", "x = (1,\n  2)\n"])
def test_the_recorder_is_imported_before_anything_else(first):
    head = '"""Words."""\nfrom __future__ import annotations\n'
    assert with_record(head + first) == head + "import program_record\n" + first


def test_code_of_a_page_is_its_blocks(tmp_path):
    page = "Title\n\n.. code:: python\n\n   import os\n\n   def f():\n      pass\n\nText::\n\n::\n\n    second = 2\n\nEnd\n"
    (tmp_path / "we" / "ours").mkdir(parents=True)
    (tmp_path / "we" / "ours" / "page.rst").write_text(page)
    for blocks, wanted in (((), ("import os", "second = 2")), ((1,), ("second = 2",))):
        script = prepare(program(path="page.rst", blocks=blocks), tmp_path, tmp_path, tmp_path / f"root{len(blocks)}")
        assert script.name == "page.py"
        assert all(word in script.read_text() for word in wanted)
        assert ("import os" in script.read_text()) == ("import os" in wanted)


def test_of_printed_lines_those_that_tell_of_time_are_not_compared(tmp_path):
    for place, ms in (("gloo", 3), ("threads", 4)):
        (tmp_path / place).mkdir()
        lines = ["loss 0.5", f"took {ms} ms", f"at 0x{ms}", f"speed {ms}"]
        (tmp_path / place / "0.jsonl").write_text("".join(json.dumps({"kind": "print", "text": text}) + "\n" for text in lines))
    likeness = compare(tmp_path / "gloo", tmp_path / "threads", 1)
    assert (likeness.lines, likeness.same_lines) == (2, 1)
    assert compare(tmp_path / "gloo", tmp_path / "threads", 1, "speed").equal


def test_the_manifest_lists_forty_programs_each_of_one_version_with_a_reason_for_every_change():
    programs = read(MANIFEST)
    assert len({each.name for each in programs}) == len(programs) >= 40
    assert all(len(each.commit) == 40 and len(each.sha256) == 16 and each.licence for each in programs)
    assert {change.why for each in programs for change in each.changes} == {"data", "weights", "size", "version"}
