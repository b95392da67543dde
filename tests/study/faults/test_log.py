"""Fault logs: read from a file, and as the states that they take a machine through."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.study.faults.source import MOST_STATES, FaultLog, read_log, states_of_log
from launch.data.presets import production_log


def write(path, *lines):
    path.write_text("\n".join(("server,start_day,end_day", *lines)) + "\n")
    return path


def test_a_state_has_the_servers_that_are_faulty_at_its_time():
    log = production_log()
    found = states_of_log(log)
    assert found.share.sum() == pytest.approx(1)
    ends = np.append(found.begin[1:], log.days)
    for i in np.random.default_rng(0).integers(len(found.begin), size=40):
        now = (found.begin[i] + ends[i]) / 2
        there = log.unit[(log.start <= now) & (now < log.end)]
        assert np.flatnonzero(found.faulty[i]).tolist() == sorted(set(there.tolist()))


def test_the_time_that_servers_are_faulty_is_that_of_their_spells(tmp_path):
    log = read_log(write(tmp_path / "log.csv", "0,0,5", "2,4,10", "0,8,10"), 4)
    found = states_of_log(log)
    assert found.share @ found.faulty.mean(axis=1) == pytest.approx((5 + 6 + 2) / 4 / 10)
    assert log.mean_repair_days == pytest.approx(13 / 3)


def test_of_a_log_with_many_changes_even_moments_are_looked_at():
    random = np.random.default_rng(0)
    start = random.random(3000) * 90
    log = FaultLog(50, 100.0, random.integers(50, size=3000), start, start + random.random(3000), np.arange(3000))
    found = states_of_log(log)
    assert len(found.begin) == MOST_STATES
    assert found.sampled
    for i in (0, 700, 2047):
        there = log.unit[(log.start <= found.begin[i]) & (found.begin[i] < log.end)]
        assert np.flatnonzero(found.faulty[i]).tolist() == sorted(set(there.tolist()))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["0,5,4"], r"log.csv, line 2: end_day must be start_day=5 or later, got '4'"),
        (["0,-1,4"], r"log.csv, line 2: start_day must be a number of 0 or more, got '-1'"),
        (["0,1,2", "9,1,2"], r"log.csv, line 3: server must be a whole number of 0..3, got '9'"),
        (["0,1,2", "1.5,1,2"], r"log.csv, line 3: server must be a whole number of 0..3, got '1.5'"),
        (["0,1,x"], r"log.csv, line 2: end_day must be a number of 0 or more, got 'x'"),
        (["0,1"], r"log.csv, line 2: end_day must be a number of 0 or more, got ''"),
        (["1,4,6", "0,1,5", "1,2,5"], r"line 2: start_day must be day 5 or later, as server 1 is faulty until then \(line 4\)"),
        (["0,0,5", "0,4,6"], r"line 3: start_day must be day 5 or later, as server 0 is faulty until then \(line 2\), got '4'"),
        ([], r"log.csv, line 2: a spell must follow the names of the columns, got none"),
    ],
)
def test_what_cannot_be_is_one_line_with_its_number(tmp_path, lines, words):
    with pytest.raises(InputError, match=words):
        read_log(write(tmp_path / "log.csv", *lines), 4)


def test_no_file_and_other_columns_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"--log: cannot read .*none.csv.*: No such file"):
        read_log(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("node,begin\n1,2\n")
    with pytest.raises(InputError, match="line 1: columns missing: server, start_day, end_day; those needed are"):
        read_log(tmp_path / "other.csv")


def test_without_their_number_there_are_as_many_servers_as_the_log_names(tmp_path):
    log = read_log(write(tmp_path / "log.csv", "0,0,5", "11,4,10"))
    assert (log.units, log.days, log.unit.tolist()) == (12, 10.0, [0, 11])
    with pytest.raises(InputError, match=r"log.csv, line 2: server must be a whole number of 0 or more, got '1.5'"):
        read_log(write(tmp_path / "log.csv", "1.5,0,5"))
    assert read_log(write(tmp_path / "log.csv", "0,0,5", "0,5,5", "0,5,7")).mean_repair_days == pytest.approx(7 / 3)


def test_a_log_lasts_to_the_latest_end_wherever_its_line_is(tmp_path):
    log = read_log(write(tmp_path / "log.csv", "3,6,9.5", "0,7,8", "3,1,2"))
    assert (log.days, log.units, log.unit.tolist()) == (9.5, 4, [3, 0, 3])
    assert states_of_log(log).begin.tolist() == [0, 1, 2, 6, 7, 8]


def test_a_log_of_no_time_is_refused(tmp_path):
    with pytest.raises(InputError, match="end_day must be above 0 in one line or more"):
        read_log(write(tmp_path / "log.csv", "0,0,0"))
