"""A choice is kept: the second time nothing is timed, and whatever differs is chosen anew."""

import builtins
import multiprocessing
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from emu.collective.algorithm import ALGORITHMS, algorithm, collective
from emu.collective.choice import AlgorithmOnDims
from emu.collective.shape import PartialGrid
from emu.registry import import_file
from emu.store import ValueTable
from emu.study.choice import algorithm_cache
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement, Site
from emu.topology.catalogue import build_topology

TORUS = "torus:dims=4x4,bandwidth=50GB/s,latency=500ns"
GRID = """
dims = [2, 2]
routes = "shortest"
bandwidth = "50GB/s"
latency = "500ns"
[npus]
gpu = 4
[[links]]
among = "gpu"
dims = [2, 2]
"""
OWN = """from emu.collective.algorithm import algorithm, collective
collective("all_reduce", "a-direct")(algorithm("all_reduce", "{of}").build)  # by its name the first of those as fast
"""


def asked_anew(site: Site, wanted: Requirement) -> AlgorithmOnDims:
    fastest.cache_clear()
    return fastest(site, wanted).served


class TestKept:
    WANTED = Requirement("all_reduce", 0, 2**20, 4)

    @pytest.fixture
    def table(self, tmp_path: Path) -> ValueTable:
        table = ValueTable(tmp_path / "choices" / "choices.sqlite", private=True)
        algorithm_cache.keep_in(table)
        fastest.cache_clear()
        return table

    def again(self, site: Site, wanted: Requirement = WANTED) -> AlgorithmOnDims:
        """Choose as another process would, with nothing in memory."""
        fastest.cache_clear()
        return fastest(site, wanted).served

    def test_the_second_time_nothing_is_timed(self, table: ValueTable, timed: list[str]) -> None:
        first = self.again(Site.first(build_topology(TORUS)))
        assert timed
        timed.clear()
        assert self.again(Site.first(build_topology(TORUS))) == first
        assert timed == []

    def test_what_differs_in_anything_is_chosen_anew(self, table: ValueTable, timed: list[str]) -> None:
        site, wanted = Site.first(build_topology(TORUS)), self.WANTED
        grid = PartialGrid((4, 4), site.npus)
        sites = [
            site,
            Site.first(build_topology(TORUS.replace("500ns", "501ns"))),
            Site.of(site.topology, site.npus[:8]),
            replace(site, npus=site.npus[::-1]),
            replace(site, grid=(2, 8)),
            replace(site, grid=grid),
            replace(site, only=True),
            replace(site, topology=replace(site.topology, adds=True)),
            replace(site, topology=replace(site.topology, name="another")),
        ]
        asked = [(each, wanted) for each in sites]
        asked += [(site, wanted._replace(**{key: value})) for key, value in (("elements", 7), ("item_bytes", 2))]
        asked += [(site, Requirement("broadcast", root, 2**20, 4, overhead)) for root, overhead in ((0, 0), (1, 0), (1, 9))]
        for one in asked:
            timed.clear()
            self.again(*one)
            assert timed, one
        timed.clear()
        for one in asked:
            self.again(*one)
        assert timed == []

    def test_other_code_chooses_anew(self, table: ValueTable, timed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        site = Site.first(build_topology(TORUS))
        self.again(site)
        monkeypatch.setattr(algorithm_cache, "code_digest", lambda: "other")
        timed.clear()
        self.again(site)
        assert timed

    @pytest.mark.parametrize("text", ["", "{", "[]", "3", '["no-such", []]', '["ring:0x", []]'])
    def test_what_cannot_be_read_is_chosen_anew(self, table: ValueTable, text: str) -> None:
        site = Site.first(build_topology(TORUS))
        best = self.again(site)
        with closing(sqlite3.connect(table.path, isolation_level=None)) as other:
            assert other.execute("UPDATE timed SET found = ?", (text,)).rowcount == 1
        assert self.again(site) == best

    def test_a_damaged_file_is_replaced(self, table: ValueTable, timed: list[str]) -> None:
        table.path.parent.mkdir()
        table.path.write_bytes(b"damaged" * 1000)
        site = Site.first(build_topology(TORUS))
        best = self.again(site)
        assert not table.path.exists()
        algorithm_cache.keep_in(ValueTable(table.path, private=True))  # as the next command
        assert self.again(site) == best
        timed.clear()
        assert self.again(site) == best
        assert timed == []

    def test_a_folder_that_cannot_be_written_or_that_others_may_write_is_no_fault(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        for folder in ("file/choices", "open"):
            algorithm_cache.keep_in(ValueTable(tmp_path / folder / "choices.sqlite", private=True))
            assert self.again(Site.first(build_topology(TORUS))).algorithm
        assert not (tmp_path / "open" / "choices.sqlite").exists()

    def test_another_process_finds_what_one_has_chosen(self, table: ValueTable, timed: list[str]) -> None:
        """A process that was forked from it finds it too, and must not use its connection."""
        site = Site.first(build_topology(TORUS))
        best = self.again(site)
        with multiprocessing.get_context("fork").Pool(1) as pool:
            asked = pool.apply(asked_anew, (site, self.WANTED._replace(elements=77)))
        timed.clear()
        assert self.again(site, self.WANTED._replace(elements=77)) == asked
        assert self.again(site) == best
        assert timed == []

    def test_a_changed_file_of_a_topology_is_chosen_for_anew(self, table: ValueTable, timed: list[str], tmp_path: Path) -> None:
        path = tmp_path / "mine.toml"
        for text in (GRID, GRID.replace("shortest", "by-dimension")):
            path.write_text(text)
            for is_timed in (True, False):
                timed.clear()
                self.again(Site.first(build_topology(str(path))))
                assert bool(timed) == is_timed, text

    def test_a_changed_file_of_an_algorithm_is_chosen_for_anew(self, table: ValueTable, tmp_path: Path) -> None:
        path, site = tmp_path / "own.py", Site.first(build_topology("ub-mesh:board"))
        for of, best in (("direct", "a-direct"), ("ring", "direct"), ("direct", "a-direct")):
            path.write_text(OWN.format(of=of))
            import_file(path)
            try:
                assert self.again(site).algorithm == best
            finally:
                ALGORITHMS._filed.pop("all_reduce/a-direct")

    def test_what_a_file_files_after_it_has_asked_is_among_what_is_chosen_from(self, tmp_path: Path) -> None:
        path, site = tmp_path / "own.py", Site.first(build_topology("ub-mesh:board"))
        path.write_text(f"import builtins\nbuiltins.ask()\n{OWN.format(of='direct')}builtins.ask()\n")
        asked: list[str] = []
        try:
            builtins.ask = lambda: asked.append(fastest(site, self.WANTED).served.algorithm)
            import_file(path)
        finally:
            del builtins.ask
            ALGORITHMS._filed.pop("all_reduce/a-direct")
        assert asked == ["direct", "a-direct"]

    def test_what_is_filed_later_is_among_what_is_chosen_from(self) -> None:
        """That is so in one process, of one topology, without a store."""
        site = Site.first(build_topology("ub-mesh:board"))
        assert fastest(site, self.WANTED).served.algorithm != "a-direct"
        collective("all_reduce", "a-direct")(algorithm("all_reduce", "direct").build)  # by its name the first of the fastest
        try:
            assert fastest(site, self.WANTED).served.algorithm == "a-direct"
        finally:
            ALGORITHMS._filed.pop("all_reduce/a-direct")
