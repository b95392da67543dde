from launch.show.text.table import merged_assumption_lines


def test_a_sentence_is_told_once_and_for_whom_if_not_for_all():
    told = [("a", ["links share", "a lane is 56 GB/s"]), ("b", ["links share"]), ("a", ["links share", "a lane is 56 GB/s"])]
    assert merged_assumption_lines(told) == ["Assumed:", "- links share", "- a: a lane is 56 GB/s"]
