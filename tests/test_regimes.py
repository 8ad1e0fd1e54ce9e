import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsim.analysis import regimes
from kvsim.analysis.regimes import COMPULSORY, HEAVILY, MILDLY, REGIMES, TTL, regime

shares = st.floats(0, 1)


@given(shares, shares, shares, shares)
def test_without_a_ttl_nothing_is_bound_by_it(one, two, three, by_ttl):
    lru, opt, infinite = sorted((one, two, three))
    assert regime(lru, opt, infinite) in {COMPULSORY, MILDLY, HEAVILY}
    expected = TTL if by_ttl > regimes.MOST else regime(lru, opt, infinite)
    assert regime(lru, opt, infinite, by_ttl) == expected


def test_words_name_the_limits_at_which_the_rule_turns():
    words = regimes.describe()
    assert tuple(words) == REGIMES
    near, mild = (float(x) / 100 for x in re.findall(r"([\d.]+) point", words[MILDLY]))
    (share,) = (float(x) / 100 for x in re.findall(r"([\d.]+) %", words[TTL]))
    a_little = 1e-9
    assert regime(0.5, 0.9, 0.5 + near - a_little) == COMPULSORY  # "within"
    assert regime(0.5, 0.9, 0.5 + near + a_little) != COMPULSORY
    assert regime(0.5, 0.5 + mild - a_little, 0.9) == MILDLY  # "less than"
    assert regime(0.5, 0.5 + mild + a_little, 0.9) == HEAVILY  # "or more"
    assert regime(0.5, 0.9, 0.5, share) == COMPULSORY  # "more than"
    assert regime(0.5, 0.9, 0.5, share + a_little) == TTL
    for name, number in ((COMPULSORY, near), (HEAVILY, mild)):
        assert f"{100 * number:g} point" in words[name]


@pytest.mark.parametrize(("constant", "value"), [("NEAR", 0.02), ("MILD", 0.08), ("MOST", 0.7)])
def test_words_follow_the_constants(monkeypatch, constant, value):
    before = regimes.describe()
    monkeypatch.setattr(regimes, constant, value)
    after = regimes.describe()
    assert any(f"{100 * value:g} " in after[name] != before[name] for name in REGIMES)


def test_many_points_below_the_optimum_is_never_mild():
    # 35.5 % against 67.5 % was once "mild", because it is more than half.
    assert regime(0.355, 0.675, 0.96) == HEAVILY


def test_rules_know_nothing_of_experiments():
    assert "import" not in inspect.getsource(regimes)
