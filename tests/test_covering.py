"""The plans that stand for all pairs have all pairs."""

from itertools import combinations

from tests.covering import completed, covering, pairs, singles

SETTINGS = {"a": ["1", "2", "3"], "b": ["1", "2"], "c": ["1"], "d": ["1", "2"]}


def one(chosen):
    return 1.0 + len(chosen)


def anything(chosen):
    return True


def not_everything(chosen):
    """`c` needs `d`, and `a=3` goes with no `b`."""
    have = dict(chosen)
    return not ("c" in have and "d" not in have) and not (have.get("a") == "3" and "b" in have)


def test_every_pair_of_values_is_in_one_of_few_combinations():
    found = covering(SETTINGS, anything, one)
    assert {pair for chosen in found for pair in combinations(chosen, 2)} == set(pairs(SETTINGS))
    assert 6 <= len(found) <= 8  # three values of one times two of another are 6
    assert all([name for name, _ in chosen] == sorted(name for name, _ in chosen) for chosen in found)


def test_a_pair_comes_with_what_it_needs_or_not_at_all():
    found = covering(SETTINGS, not_everything, one)
    assert all(map(not_everything, found))
    missing = set(pairs(SETTINGS)) - {pair for chosen in found for pair in combinations(chosen, 2)}
    assert missing == {(("a", "3"), ("b", "1")), (("a", "3"), ("b", "2"))}
    assert completed((("a", "1"), ("c", "1")), SETTINGS, not_everything, one) == (("a", "1"), ("c", "1"), ("d", "1"))
    assert completed((("a", "3"), ("b", "1")), SETTINGS, not_everything, one) is None


def test_combinations_are_the_same_every_time():
    assert covering(SETTINGS, not_everything, one) == covering(SETTINGS, not_everything, one)
    assert len(list(singles(SETTINGS))) == 8
