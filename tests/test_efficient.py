"""What stands in for attention at less than its cost, and how near it comes."""

import pytest

from longwave import mixers
from longwave.errors import UserError
from longwave.laws import check


def test_linear_attention_without_a_map_has_no_normaliser():
    with pytest.raises(UserError, match="normalise=False"):
        mixers.create("linear_attention", 8, feature="identity")
    report = check(lambda d: mixers.create("linear_attention", d, feature="identity", normalise=False))
    assert report.ok, f"\n{report}"
