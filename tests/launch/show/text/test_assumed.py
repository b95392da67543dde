from launch.show.text.assumed import assumed_of_all


def test_a_sentence_is_told_once_and_for_whom_if_not_for_all():
    told = [("a", ["links share", "a lane is 56 GB/s"]), ("b", ["links share"]), ("a", ["links share", "a lane is 56 GB/s"])]
    assert assumed_of_all(told) == ["Assumed:", "- links share", "- a: a lane is 56 GB/s"]
