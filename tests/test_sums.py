"""Sums of kernels against the kernels that they add up, and what a model does with one."""

import numpy as np
import pytest
import torch

from sharpgp import SharpGPRegressor
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp import train
from sharpgp.gp.kernels.by_name import NamedKernel, kernel_of, make_covariance
from sharpgp.gp.priors import LengthscalePrior

RNG = torch.Generator().manual_seed(0)
X = torch.rand(30, 3, dtype=torch.float64, generator=RNG)
NEW = torch.rand(7, 3, dtype=torch.float64, generator=RNG)


def test_a_sum_adds_up_kernels_with_lengthscales_of_their_own():
    covariance = make_covariance("rbf+laplace", 3)
    theta = 0.5 + torch.rand(2, 9, dtype=torch.float64, generator=RNG)
    rbf, laplace = theta[:, [0, 1, 2, 6, 8]], theta[:, [3, 4, 5, 7, 8]]
    one, other = make_covariance("rbf", 3), make_covariance("laplace", 3)
    expected = one.matrix(rbf, X, NEW) + other.matrix(laplace, X, NEW)
    torch.testing.assert_close(covariance.matrix(theta, X, NEW), expected)
    torch.testing.assert_close(
        covariance.diag(theta, X), theta[:, 6:8].sum(1)[:, None].expand(2, 30)
    )
    # Each part's lengthscales have the prior.
    penalties = [c.penalty(LengthscalePrior(), X) for c in (covariance, one, other)]
    found, *parts = (p(t[0].log()) for p, t in zip(penalties, (theta, rbf, laplace), strict=True))
    torch.testing.assert_close(found, sum(parts))


def test_a_laplace_kernel_is_a_product_of_kernels_of_single_features():
    theta = 0.5 + torch.rand(1, 5, dtype=torch.float64, generator=RNG)
    expected = theta[:, 3, None, None].clone()
    for j in range(3):
        own = torch.stack([theta[0, j], torch.tensor(1.0).double(), theta[0, 4]])[None]
        one = make_covariance("matern12", 1)
        expected = expected * one.matrix(own, X[:, j : j + 1], NEW[:, j : j + 1])
    torch.testing.assert_close(make_covariance("laplace", 3).matrix(theta, X, NEW), expected)
    # Features that share a lengthscale.
    tied = make_covariance(NamedKernel("laplace", (0, 1, 1)), 3)
    free = theta[:, [0, 1, 1, 3, 4]]
    torch.testing.assert_close(
        tied.matrix(theta[:, [0, 1, 3, 4]], X, NEW),
        make_covariance("laplace", 3).matrix(free, X, NEW),
    )


def test_training_finds_the_smooth_and_the_rough_part():
    grid = torch.linspace(0, 1, 120, dtype=torch.float64)[:, None]
    y = (6 * grid[:, 0]).sin() + 0.5 * (grid[:, 0] > 0.37) + 0.5 * (grid[:, 0] > 0.72)
    posterior, _ = train(grid, y, "laplace+rbf")
    assert kernel_of(posterior.covariance) == "laplace+rbf"
    likelihood = {k: train(grid, y, k)[1].log_likelihood for k in ("laplace", "rbf", "laplace+rbf")}
    assert likelihood["laplace+rbf"] > max(likelihood["laplace"], likelihood["rbf"]) + 0.05


def test_a_model_of_a_sum_is_saved_and_read(tmp_path):
    y = X[:, 0].sin() + X[:, 1] * X[:, 2]
    model = SharpGPRegressor(base="laplace+matern32", calibration="loo", random_state=0)
    model.fit(X.numpy(), y.numpy()).save(tmp_path / "model.sgp")
    again = SharpGPRegressor.load(tmp_path / "model.sgp")
    np.testing.assert_array_equal(again.predict(NEW.numpy()), model.predict(NEW.numpy()))
    assert [one.name for one in again.base_] == ["laplace+matern32"]


@pytest.mark.parametrize("base", ["rbf+extra_trees", "rbf+", "rbf+mattern32"])
def test_only_kernels_add_up(base):
    with pytest.raises(InvalidInputError, match=r"a sum such as 'rbf\+matern12'"):
        SharpGPRegressor(base=base).fit(X.numpy(), X[:, 0].numpy())
