"""Rows of papers: each is met or says why not, and what is printed is compared with and never computed by."""

from dataclasses import replace

import pytest

from launch.papers.flex_sipac.report import Paper as FlexSiPAC
from launch.papers.hpn.report import Paper as Hpn
from launch.papers.targets import judged

UNMET = {
    Hpn: {
        "missed": {"hpn-t2-t2-clos", "hpn-ckpt", "hpn-dp-lo"},
        "open": {"hpn-149", "hpn-l7", "hpn-l13", "hpn-g175"},
    },
    FlexSiPAC: {"missed": {"fs-s-4"}, "open": {"fs-flex-shape"}},
}


@pytest.mark.parametrize("paper", UNMET)
def test_rows_are_met_by_ways_that_do_not_see_what_is_printed_or_say_why_not(paper):
    printed = paper().targets
    hidden = paper([replace(target, value="hidden") for target in printed])
    rows = [judged(target, hidden.answer(blind)) for target, blind in zip(printed, hidden.targets, strict=True)]
    found = {verdict: {row.target.id for row in rows if row.verdict == verdict} for verdict in ("missed", "open")}
    assert found == UNMET[paper]
    assert all(row.assumptions for row in rows if row.verdict in found)
    assert all(row.verdict == "listed" for row in rows if row.target.kind == "H")
