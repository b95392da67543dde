"""Files of arrivals: what a line gives, and each mistake answered in one line with the file and the line number."""

import pytest

from emu.errors import InputError
from emu.study.queue.workload.arrivals import read_arrivals
from emu.study.queue.workload.queued_job import JobModel

HEAD = "submit,npus,seconds,priority\n"
TRAINED = "submit,npus,model,plan,global_batch,seq,steps\n"


def read(tmp_path, text):
    path = tmp_path / "jobs.csv"
    path.write_text(text)
    return read_arrivals(path, 64)


def test_a_line_is_a_job(tmp_path):
    first, second = read(tmp_path, HEAD + "0,8,60,\n1.5,64,0.25,-3\n")
    assert (first.submit_us, first.npus, first.work_us, first.priority) == (0, 8, 60_000_000, 0)
    assert (second.submit_us, second.npus, second.work_us, second.priority) == (1_500_000, 64, 250_000, -3)


def test_work_can_be_steps_of_a_model(tmp_path):
    (job,) = read(tmp_path, TRAINED + '0,8,llama-tiny,"dp=4,tp=2",8,64,100\n')
    assert job.trained == JobModel("llama-tiny", "dp=4,tp=2", 8, 64, 100)


def test_the_mark_of_a_spreadsheet_and_spaces_after_commas_are_skipped(tmp_path):
    (job,) = read(
        tmp_path, '\ufeffsubmit, npus, model, plan, global_batch, seq, steps\n0, 8, llama-tiny, "dp=4, tp=2", 8, 64, 100\n'
    )
    assert (job.submit_us, job.npus, job.trained.plan) == (0, 8, "dp=4, tp=2")


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (HEAD, 2, "a job must follow the names of the columns"),
        ("submit,npus\n0,1\n", 1, "columns must be submit, npus, and seconds or model"),
        ("submit,seconds\n0,1\n", 1, "columns missing: npus"),
        ("submit,npus,secnds\n0,1,2\n", 1, "no column of arrivals is called 'secnds'; did you mean seconds or steps?"),
        ("submit,npus,seconds,seconds\n0,1,2,3\n", 1, "columns must be different"),
        (HEAD + "0,8,60,0\n-1,8,60,0\n", 3, "submit must be seconds of 0 or more"),
        (HEAD + "5,8,60,0\n6,8,60,0\n4,8,60,0\n", 4, "submit must be 6 or later, as in the line before, got '4'; sort"),
        (HEAD + "0,65,60,0\n", 2, "npus must be at most 64, those of the machine, got 65"),
        (HEAD + "0,0,60,0\n", 2, "npus must be a whole number of 1 or more"),
        (HEAD + "0,8.5,60,0\n", 2, "npus must be a whole number of 1 or more"),
        (HEAD + "0,8,-60,0\n", 2, "seconds must be seconds above 0"),
        (HEAD + "0,8,0,0\n", 2, "seconds must be seconds above 0"),
        (HEAD + "0,8,nan,0\n", 2, "seconds must be seconds above 0"),
        (HEAD + "0,8,inf,0\n", 2, "seconds must be seconds above 0"),
        (HEAD + "0,8,soon,0\n", 2, "seconds must be seconds above 0"),
        (HEAD + "0,8,60,high\n", 2, "priority must be a whole number; larger goes first, got 'high'"),
        (HEAD + "0,8\n", 2, "the line must be 4 values, got 2"),
        (HEAD + "0,8,60,0,1\n", 2, "the line must be 4 values, got 5; put a value with commas into double quotes"),
        (HEAD + '0,8,60,0\n0,8,"60,0\n5,8,60,0\n', 3, "no CSV: unexpected end of data"),
        (HEAD + "0,8,,0\n", 2, "work must be seconds, or steps of a model, one of them, got 'none'"),
        (TRAINED + "0,8,llama-tiny,,8,64,100\n", 2, "a job with a model must be given all of"),
        (TRAINED + "0,8,llama-tiny,dp=8,8,64,0\n", 2, "steps must be a whole number of 1 or more"),
    ],
)
def test_a_mistake_is_answered_with_its_line(tmp_path, text, line, words):
    with pytest.raises(InputError) as refused:
        read(tmp_path, text)
    message = str(refused.value)
    assert message.startswith(f"{tmp_path / 'jobs.csv'}, line {line}: ")
    assert words in message
    assert "\n" not in message


def test_jobs_are_numbered_in_the_order_of_the_file_and_know_their_line(tmp_path):
    jobs = read(tmp_path, HEAD + "0,8,60,\n\n5,64,7,3\n5,1,2,\n")
    assert [job.number for job in jobs] == [0, 1, 2]
    assert [job.where.rpartition(", ")[2] for job in jobs] == ["line 2", "line 4", "line 5"]
    assert [job.trained for job in jobs] == [None] * 3


@pytest.mark.parametrize(
    ("line", "submit_us", "npus", "work_us", "priority"),
    [
        ("0.0000004,1,0.0000006,-1000000000", 0, 1, 1, -(10**9)),
        ("1000000000,64,1000000000,1000000000", 10**15, 64, 10**15, 10**9),
        ("0.0000015,1,0.000001,-0", 2, 1, 1, 0),
    ],
)
def test_numbers_are_taken_from_a_microsecond_to_thirty_years(tmp_path, line, submit_us, npus, work_us, priority):
    (job,) = read(tmp_path, HEAD + line + "\n")
    assert (job.submit_us, job.npus, job.work_us, job.priority) == (submit_us, npus, work_us, priority)


@pytest.mark.parametrize(
    "line", ["0,1,0.0000004,", "0,1,1000000001,", "1000000001,1,1,", "0,1,1,1000000001", "0,1,1,-1000000001", "0,1,1,--3"]
)
def test_numbers_beyond_these_are_refused(tmp_path, line):
    with pytest.raises(InputError, match="line 2: "):
        read(tmp_path, HEAD + line + "\n")


def test_steps_of_a_model_may_be_a_thousand_million_and_take_no_seconds_yet(tmp_path):
    (job,) = read(tmp_path, TRAINED + "3,8,llama-tiny,dp=8,1,1,1000000000\n")
    assert (job.work_us, job.trained.steps, job.trained.global_batch) == (0, 10**9, 1)
    for words in ("1,1,1000000001", "1,0,5", "0,1,5"):
        with pytest.raises(InputError, match="must be a whole number of 1 or more"):
            read(tmp_path, TRAINED + f"3,8,llama-tiny,dp=8,{words}\n")
