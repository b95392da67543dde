from fractions import Fraction

import pytest

from emu.collective.claim import Claim
from emu.errors import InputError


def test_a_claim_has_a_term_for_each_link_class():
    one = Claim("rank", alpha=lambda n: n - 1, beta=lambda n: Fraction(n - 1, n))
    assert one.terms(4) == [(3, Fraction(3, 4))]
    two = Claim("pair", alpha=lambda n: (n, 2), beta=lambda n: (Fraction(1), Fraction(1, n)))
    assert two.terms(4) == [(4, Fraction(1)), (2, Fraction(1, 4))]


def test_a_claim_of_different_numbers_of_classes_is_refused():
    claim = Claim("pair", alpha=lambda n: (n, 2), beta=Fraction)
    with pytest.raises(InputError, match="claim: beta must be of 2 link classes, as alpha is, got 1; give one entry a class"):
        claim.terms(4)
