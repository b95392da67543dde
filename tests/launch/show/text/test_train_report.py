"""A training run in words: every figure where it belongs."""

from dataclasses import fields, replace

from emu.study.training.train import TrainingResult
from launch.show.blocks import fact_lines
from launch.show.text.step_report import foot_facts, part_facts, train_report
from launch.show.text.table import assumption_lines
from tests.launch.show.text.test_step_report import STEP

RATED = replace(STEP, tokens_per_s=1234567.8, mfu=0.0123456, hfu=0.0151515)
RUN = TrainingResult(
    **{f.name: getattr(RATED, f.name) for f in fields(STEP)},
    model="tiny", plan="tp=2,dp=4", loss=(5.5, 5.25), reference_loss=(5.5000001, 5.3), gradient_error=3.25e-6,
    wall_run_s=1.24, wall_reference_s=2.36, wall_step_s=0.3, wall_step_cpu_s=0.2,
)  # fmt: skip


def test_a_run_has_a_line_a_step_and_the_figures_of_the_last() -> None:
    lines = train_report(replace(RUN, wall_fabric_s=3.49)).splitlines()
    assert lines[:7] == [
        "tiny on 8 npu of ring:n=8, tp=2,dp=4",
        "",
        "  step        loss  one process  virtual time",
        "     1    5.500000     5.500000          7 ms",
        "     2    5.250000     5.300000          2 ms",
        "",
        "gradients       within 3.2e-06 of one process's, from the same weights",
    ]
    rest = lines[7:]
    assert rest[:8] == fact_lines(part_facts(STEP))
    assert rest[8:11] == [
        "tokens/s        1,234,568",
        "MFU             0.0123; HFU 0.0152",
        "wall            1.2 s run, 2.4 s one process, 3.5 s timing",
    ]
    assert rest[11:] == [*fact_lines(foot_facts(STEP)), "", *assumption_lines(STEP.assumptions)]
