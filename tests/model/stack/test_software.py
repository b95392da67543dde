"""The software of a stack is one value: code asks its rules, each rule is asked, and no name is compared."""

import ast
import pickle
from dataclasses import fields, replace
from pathlib import Path

import pytest

import emu
from emu.errors import InputError
from emu.model.generate.generate import WRITERS, generate, memory_by_part
from emu.model.model import MODELS
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import Software
from emu.model.stack.stack import SOFTWARE, Stack, find_software, parse_stack
from emu.study.planning.bound.outline import PATHS

ROOT = Path(emu.__file__).parents[1]
RULES = [field.name for field in fields(Software) if field.type is bool]
# Steps that show the rules: a model, a plan, and further words of the stack.
STEPS = (
    ("llama-tiny", "tp=2,dp=2", ""),
    ("llama-tiny", "tp=2,dp=2,sharding=zero1", ""),
    ("llama-tiny", "dp=4,sharding=zero1,shard=2", ""),
    ("llama-tiny", "dp=2,sharding=fsdp", "weight=float32"),
    ("llama-tiny", "pp=2", ""),
    ("gpt-tiny", "cp=2,recompute=full", ""),
    ("gpt3-175b", "tp=2", ""),
    ("gpt-moe-tiny", "tp=2,sp,dp=2", ""),
    ("deepseek-tiny", "tp=2,sp", ""),
    ("gpt-moe-tiny", "dp=2,ep=2", "fp8=tensor"),
    ("gpt-moe-tiny", "dp=2,ep=2,dropout=0.1", "dispatch=float8_e4m3fn"),
)


def outcome(software: Software, name: str, words: str, settings: str) -> object:
    """Return the events and the memory of a step, or the line that refuses it."""
    model, plan = MODELS.find(name), parse_plan(words, global_batch=8, seq=64)
    try:
        stack = replace(parse_stack(f"software={software.name},{settings}".strip(",")), software=software)
        check_fits_model(plan, model, stack)
        check_runs(plan, model, stack)
        return generate(model, plan, stack).digest(), memory_by_part(model, plan, stack)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_changes_a_step_or_what_is_refused(rule):
    """A rule that nothing asks would make no difference; all code knows the changed value by the same name."""
    for software in SOFTWARE.values():
        turned = replace(software, **{rule: not getattr(software, rule)})
        assert turned == software
        if any(outcome(turned, *step) != outcome(software, *step) for step in STEPS):
            return
    pytest.fail(f"nothing depends on {rule}")


@pytest.mark.parametrize("software", SOFTWARE.values(), ids=str)
def test_software_is_the_same_value_in_another_process(software):
    found = pickle.loads(pickle.dumps(Stack(software)))
    assert found == Stack(software)
    assert found.software is not software
    assert {software: 1}[found.software] == 1
    assert found.software.settings == software.settings


def test_software_is_found_by_its_name_alone():
    assert [find_software(name) for name in SOFTWARE] == [*SOFTWARE.values()]
    assert len({Stack(each) for each in SOFTWARE.values()}) == len(SOFTWARE)
    with pytest.raises(InputError, match="no software of a stack is called 'jax'"):
        find_software("jax")


def test_a_software_that_forgets_a_setting_or_a_cast_is_refused():
    software = SOFTWARE["megatron"]
    fewer = {name: values for name, values in software.settings.items() if name != "optimizer"}
    for settings in (fewer, {**software.settings, "optimiser": ("fused",)}):
        with pytest.raises(InputError, match=r"software: settings must be .*'optimi"):
            replace(software, settings=settings)
    with pytest.raises(InputError, match=r"software: casts must be .*'tile'"):
        replace(software, settings={**software.settings, "fp8": ("nothing", "tile")})


def test_each_software_has_a_writer_of_tapes_and_bounds_of_plans():
    assert set(WRITERS) == set(PATHS) == {*SOFTWARE.values()}


def named(source: str) -> list[str]:
    """Return the names of software that stand in a source as words of their own."""
    return [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and n.value in SOFTWARE]


def test_a_name_stands_beside_its_value_alone():
    files = [path for top in ("emu", "launch") for path in (ROOT / top).rglob("*.py")]
    found = {str(path.relative_to(ROOT)): names for path in files if (names := named(path.read_text(encoding="utf-8")))}
    assert found == {"emu/model/stack/software.py": [*SOFTWARE]}


def test_a_name_that_is_compared_is_seen():
    assert named('if stack.software.name == "pytorch": pass') == ["pytorch"]
