"""How `make test` chooses among the cases of a parametrized test."""

import pytest

from tests.conftest import spread


@pytest.mark.parametrize(
    "most, kept", [(1, "g"), (2, "ag"), (3, "adg"), (7, "abcdefg"), (9, "abcdefg")], ids=lambda value: str(value)
)
def test_the_kept_cases_are_spread_over_all_of_them_and_contain_the_last(most, kept):
    assert "".join(spread(list("abcdefg"), most)) == kept
