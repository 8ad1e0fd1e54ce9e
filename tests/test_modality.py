"""Silverman's test on samples whose modes are known."""

import numpy as np
import pytest

from kvsim.analysis.modality import critical_bandwidth, density, silverman, supported_modes


def sample(*centres: float, size: int = 1500, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.concatenate([centre + rng.standard_normal(size) for centre in centres])


@pytest.mark.parametrize(
    ("centres", "modes"), [((0.0,), 1), ((0.0, 5.0), 2), ((0.0, 5.0, 11.0), 3)]
)
def test_finds_the_modes_of_a_mixture(centres, modes):
    test = silverman(sample(*centres), draws=100)
    assert supported_modes(test) == modes
    assert test["at"][modes - 1] == pytest.approx(centres, abs=0.3)


def test_a_few_outliers_make_no_mode():
    values = np.append(sample(0.0), [-30.0, -29.0, 40.0])
    assert supported_modes(silverman(values, draws=100)) == 1


def test_the_shape_of_two_modes():
    row = silverman(np.append(sample(0.0), sample(6.0, size=500)), 2, draws=20).iloc[1]
    assert row["smallest_peak"] == pytest.approx(1 / 3, abs=0.05)
    assert row["deepest_valley"] < 0.2


def test_the_critical_bandwidth_is_where_the_modes_merge():
    values = np.array([-1.0, 1.0])  # two equal normal densities merge at half their distance
    assert critical_bandwidth(values, 1, (-2.0, 2.0)) == pytest.approx(1.0, rel=0.01)


def test_density_integrates_to_one_and_is_normal_for_one_point():
    position, height = density(np.array([0.0, 0.0, 1e-9]), 0.5)
    assert height.sum() * (position[1] - position[0]) == pytest.approx(1, abs=1e-4)
    assert height.max() == pytest.approx(1 / (0.5 * np.sqrt(2 * np.pi)), rel=1e-3)


def test_the_same_seed_gives_the_same_p_value():
    first, second = (silverman(sample(0.0, 2.5), draws=30, seed=5) for _ in range(2))
    assert first.equals(second)
    assert first["p_value"].between(1 / 31, 1).all()


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
def test_too_few_values_are_no_data(values):
    test = silverman(np.array(values))
    assert test["p_value"].isna().all()
    assert supported_modes(test) is None
