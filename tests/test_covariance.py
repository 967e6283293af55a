"""Covariances against gpytorch's kernels and finite differences."""

import gpytorch
import pytest
import torch

from helpers import marked
from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.kernels.by_name import make_covariance
from sharpgp.gp.kernels.covariance import STATIONARY, Stationary
from sharpgp.gp.kernels.from_gpytorch import FromGPyTorch
from sharpgp.names import KERNELS

DIMENSIONS = (1, 2, 5, 20)


def random_inputs(d: int, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)  # noqa: E731
    theta = torch.exp(0.5 * draw(3, d + 2))
    return theta, draw(9, d), draw(6, d)


def gpytorch_twin(covariance: Stationary, theta: torch.Tensor) -> gpytorch.kernels.Kernel:
    kernel = covariance.as_gpytorch()
    kernel.base_kernel.lengthscale = 1.0 / theta[:-2]
    kernel.outputscale = theta[-2]
    return kernel


@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("kind", STATIONARY)
def test_stationary_equals_gpytorch(kind, d):
    theta, X1, X2 = random_inputs(d)
    covariance = Stationary(kind, d)
    cross, square = covariance.matrix(theta, X1, X2), covariance.matrix(theta, X1)
    for k in range(len(theta)):
        twin = gpytorch_twin(covariance, theta[k])
        # gpytorch's distances of a point to itself are off by rounding for the rough kernels.
        torch.testing.assert_close(cross[k], twin(X1, X2).to_dense().detach(), rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(square[k], twin(X1).to_dense().detach(), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(covariance.diag(theta, X1)[k], square[k].diagonal())


@pytest.mark.parametrize("d", marked([2, 20], slow={20}))
@pytest.mark.parametrize("kind", STATIONARY)
def test_stationary_gradients_match_finite_differences(kind, d):
    theta, X1, X2 = random_inputs(d, seed=1)
    covariance = Stationary(kind, d)
    leaves = [a.requires_grad_() for a in (theta, X1, X2)]
    assert torch.autograd.gradcheck(covariance.matrix, leaves)
    assert torch.autograd.gradcheck(lambda t: covariance.matrix(t, X1.detach()), (theta,))


@pytest.mark.parametrize("kind", [*KERNELS, "laplace+matern32"])
def test_values_without_gradients_are_those_with_them(kind):
    """No slopes are computed and work is done in place where nothing asks for gradients."""
    _, X1, X2 = random_inputs(3)
    covariance = make_covariance(kind, 3)
    theta = torch.linspace(0.5, 2.0, 2 * covariance.n_theta, dtype=torch.float64).view(2, -1)
    asked = theta.clone().requires_grad_()
    for points in ((X1, X2), (X1,)):
        expected, found = covariance.matrix(asked, *points), covariance.matrix(theta, *points)
        assert expected.requires_grad
        torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=0.0)
        sets = [some.expand(4, -1, -1) for some in points]
        torch.testing.assert_close(covariance.blocks(theta, *sets)[:, 3], found, rtol=1e-12, atol=0)


@pytest.mark.parametrize("kind", STATIONARY)
def test_coinciding_points_have_finite_gradients(kind):
    theta, X1, _ = random_inputs(2)
    X1[1] = X1[0]
    theta.requires_grad_()
    covariance = Stationary(kind, 2)
    (gradient,) = torch.autograd.grad(covariance.matrix(theta, X1, X1.clone()).sum(), theta)
    assert torch.isfinite(gradient).all()


def test_far_points_have_no_denormal_covariance():
    theta = torch.tensor([[1.0, 1.0, 0.1]], dtype=torch.float64)
    X = torch.tensor([[0.0], [38.0], [1e6]], dtype=torch.float64)
    K = Stationary("rbf", 1).matrix(theta, X)
    assert ((K == 0) | (K > 1e-100)).all()


def test_any_gpytorch_kernel_evaluates_like_the_original():
    kernel = gpytorch.kernels.ScaleKernel(
        gpytorch.kernels.RBFKernel(ard_num_dims=2) + gpytorch.kernels.PeriodicKernel()
    ).double()
    kernel.base_kernel.kernels[1].period_length = 1.7
    covariance = FromGPyTorch(kernel)
    theta = covariance.theta_of(kernel, torch.tensor(0.1, dtype=torch.float64))[None]
    _, X1, X2 = random_inputs(2)
    torch.testing.assert_close(
        covariance.matrix(theta, X1, X2)[0], kernel(X1, X2).to_dense().detach()
    )
    torch.testing.assert_close(covariance.diag(theta, X1)[0], kernel(X1, diag=True).detach())
    assert torch.autograd.gradcheck(
        lambda t: covariance.matrix(t, X1, X2), (theta.clone().requires_grad_(),)
    )


def test_calibrating_a_kernel_does_not_change_it():
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    covariance = FromGPyTorch(kernel)
    covariance.matrix(torch.full((1, 3), 2.0, dtype=torch.float64), random_inputs(1)[1])
    for name, value in kernel.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_the_search_leaves_the_redundant_scale_alone():
    assert Stationary("rbf", 2).searched.tolist() == [True, True, False, True]
    bare = FromGPyTorch(gpytorch.kernels.RBFKernel())  # no variance: the noise is a real ratio
    assert bare.searched.tolist() == [True, True]


def test_unknown_kernels_are_named():
    with pytest.raises(InvalidInputError, match="rbf, matern12"):
        make_covariance("rbff", 1)
    with pytest.raises(InvalidInputError, match="found int"):
        make_covariance(3, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="without a batch"):
        make_covariance(gpytorch.kernels.RBFKernel(batch_shape=torch.Size([2])), 1)
