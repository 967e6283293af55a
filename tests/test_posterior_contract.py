"""What every GP owes calibration, wrappers and adapters included.

A wrapper that forgets to forward a member, or an interface that grows without its wrappers, fails
here.
"""

import copy
import inspect
from functools import cache

import gpytorch
import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize, Warp
from botorch.models.transforms.outcome import Standardize
from gpytorch import kernels, likelihoods, means
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LinearRegression

from helpers import marked, method, wavy
from sharpgp import CrossValidated, Neighbours, SharpGPRegressor, Sparse, as_posterior
from sharpgp._stored import Reader, Writer
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.gp import train
from sharpgp.gp.adapters import FitcPosterior, MappedPosterior
from sharpgp.gp.adapters.variational import VariationalPosterior
from sharpgp.gp.exact.posterior import ExactPosterior
from sharpgp.gp.kernel_posterior import KernelPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.gp.local.posterior import LocalPosterior
from sharpgp.gp.posterior import DataPosterior, Posterior, TrainingResult, WithoutDataError
from sharpgp.gp.sparse.training import train_sparse
from sharpgp.gp.wrappers.external_mean import CentredPosterior
from sharpgp.gp.wrappers.target_warp import WarpedPosterior, train_warped
from sharpgp.gp.wrappers.wrapper import WrappedPosterior
from sharpgp.models.regressor import ScikitMean

pytestmark = pytest.mark.filterwarnings("ignore")
N, M = 40, 12
X, Y = map(torch.from_numpy, wavy(N))
X = X + 2.5  # positive, for logarithms
X_NEW = torch.from_numpy(wavy(9, seed=2)[0]) + 2.5


def exact(X, y):
    return train(X, y)[0]


def of_gpytorch(X, y):
    return train(X, y, kernels.ScaleKernel(kernels.RQKernel()))[0]


def sparse(X, y):
    return train_sparse(X, y, n_inducing=M)[0]


def neighbours(X, y):
    return LocalPosterior.from_trained(train(X, y)[0], X, y, landmarks=0, neighbours=M)


def local(X, y):
    return LocalPosterior.from_trained(train(X, y)[0], X, y, landmarks=M, neighbours=M)


def warped(X, y):
    return train_warped(X, y, Stationary("rbf", X.shape[1]))


def centred(X, y):
    regression, centre = ScikitMean(LinearRegression(), seed=0).fitted(X, y)
    return CentredPosterior(regression, train(X, y - centre)[0], centre)


def centred_sparse(X, y):
    regression, centre = ScikitMean(LinearRegression(), seed=0).fitted(X, y)
    gp, _ = train_sparse(X, y - centre, n_inducing=M)
    return CentredPosterior(regression, gp, centre)


def botorch(X, y):
    return as_posterior(
        SingleTaskGP(X, y[:, None], input_transform=Normalize(2), outcome_transform=Standardize(1))
    )


def mapped(X, y):
    return as_posterior(
        SingleTaskGP(
            X,
            y[:, None],
            input_transform=Warp(d=2, indices=[0, 1], bounds=torch.stack([X.amin(0), X.amax(0)])),
            outcome_transform=Standardize(1),
        )
    )


def linear_mean(X, y):
    torch.manual_seed(0)
    model = SingleTaskGP(
        X,
        y[:, None],
        mean_module=means.LinearMean(2),
        input_transform=Normalize(2),
        outcome_transform=Standardize(1),
    )
    return as_posterior(model)


def sklearn(X, y):
    kernel = 1.0 * RBF() + WhiteKernel(0.1)
    return as_posterior(
        GaussianProcessRegressor(kernel, normalize_y=True, optimizer=None).fit(X, y)
    )


def sgpr(X, y):
    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            likelihood = likelihoods.GaussianLikelihood()
            super().__init__(X, y, likelihood)
            self.mean_module = means.ConstantMean()
            base = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2))
            self.covar_module = kernels.InducingPointKernel(base, X[:M].clone(), likelihood)
            self.double()

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    return as_posterior(Model())


def svgp(X, y):
    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            Z = X[:M].clone()
            q = gpytorch.variational.CholeskyVariationalDistribution(M)
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q))
            self.mean_module = means.ConstantMean()
            self.covar_module = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2))
            self.double()

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().train()
    model(X)  # gpytorch initialises the variational distribution at the first call
    return as_posterior(model, likelihood=likelihoods.GaussianLikelihood().double())


#: Every GP with data, by name; those of this library are trained by it.
TRAINED = (exact, of_gpytorch, sparse, neighbours, local, warped, centred, centred_sparse)
#: Whose likelihood is that of an approximation.
APPROXIMATE = {"sparse", "neighbours", "local", "centred_sparse"}
WITH_DATA = {
    make.__name__: make for make in (*TRAINED, botorch, mapped, linear_mean, sklearn, sgpr)
}
MAKERS = WITH_DATA | {"svgp": svgp}
WRAPPERS = ("warped", "centred", "centred_sparse", "mapped", "linear_mean")
#: What holds code of the user's cannot be saved.
NOT_STORED = ("mapped", "linear_mean", "svgp")


@cache
def made(name):
    return MAKERS[name](X, Y)


@pytest.fixture(params=sorted(MAKERS))
def any_gp(request):
    return made(request.param)


@pytest.fixture(params=sorted(WITH_DATA))
def gp(request):
    return made(request.param)


#: For tests that train each GP again: those that differ from another one in a part alone, or take
#: long, are left to `make test-slow`.
SOME_WITH_DATA = marked(sorted(WITH_DATA), slow={"centred_sparse", "of_gpytorch", "sgpr"})


@pytest.fixture(params=WRAPPERS)
def wrapper(request):
    return made(request.param)


def members(interface):
    return {name for name in dir(interface) if not name.startswith("_")}


def levels(gp):
    return torch.stack([gp.theta_R, 1.3 * gp.theta_R])


# ------------------------------------------------------------------ the interface


def test_every_class_has_an_example_here():
    def leaves(cls):
        found = {cls} if not inspect.isabstract(cls) else set()
        return found.union(*(leaves(child) for child in cls.__subclasses__()))

    own = {cls for cls in leaves(Posterior) if cls.__module__.startswith("sharpgp.gp.")}
    assert own == {type(made(name)) for name in MAKERS}


def test_every_member_answers(any_gp):
    interface = DataPosterior if isinstance(any_gp, DataPosterior) else Posterior
    for name in members(interface) | set(Posterior.__annotations__):
        may_lack = name in ("n_inducing", "n_neighbours", "ties", "training")
        assert getattr(any_gp, name) is not None or may_lack, name


def test_a_wrapper_leaves_nothing_to_defaults():
    """Whatever the interfaces define is forwarded, or follows from what is."""
    follows = {"X_train", "extended", "gp", "mean_and_sigma", "retargeted", "subset"}
    attributes = set(Posterior.__annotations__)
    for name in members(DataPosterior) - follows - attributes:
        owner = next(cls for cls in WrappedPosterior.__mro__ if name in vars(cls))
        assert owner is WrappedPosterior, f"{name} is that of {owner.__name__}"


def test_wrappers_forward(wrapper):
    base, theta = wrapper.base, levels(wrapper)
    assert isinstance(wrapper, WrappedPosterior)
    sizes = ("n_train", "n_features", "n_inducing", "n_neighbours", "n_dense")
    for name in (*sizes, "device", "names", "training"):
        assert getattr(wrapper, name) == getattr(base, name), name
    assert torch.equal(wrapper.theta_R, base.theta_R)
    assert torch.equal(wrapper.searched, base.searched)
    nearly_singular = theta.clone()
    nearly_singular[:, :2], nearly_singular[:, -1] = 1e-3, 1e-30
    for ask in (theta, nearly_singular):
        assert torch.equal(wrapper.jitter(ask), base.jitter(ask))
    if wrapper.n_inducing is None:
        assert float(wrapper.jitter(nearly_singular).max()) > 0


def test_shapes_and_values(any_gp):
    theta = levels(any_gp)
    mean, sigma = any_gp.mean(X_NEW), any_gp.sigma(theta, X_NEW)
    assert mean.shape == (9,)
    assert sigma.shape == (2, 9)
    assert (sigma > 0).all()
    both = mean, any_gp.sigma(any_gp.theta_R.unsqueeze(0), X_NEW)[0]
    torch.testing.assert_close(any_gp.mean_and_sigma(X_NEW), both)
    assert any_gp.jitter(theta).shape == (2,)
    assert any_gp.n_features == 2
    assert len(any_gp.names) == len(any_gp.searched) == len(any_gp.theta_R)
    low, high = any_gp.input_range
    known = X[:M] if isinstance(any_gp, VariationalPosterior) else X
    torch.testing.assert_close(
        torch.stack([low, high]), torch.stack([known.amin(0), known.amax(0)])
    )


def test_data_are_those_that_it_was_given(gp):
    assert gp.n_train == N
    torch.testing.assert_close(gp.X_train, X)
    torch.testing.assert_close(gp.y_train, Y)
    assert gp.n_dense == (N if gp.n_inducing is None and gp.n_neighbours is None else 0)
    mean, sigma = gp.loo(levels(gp))
    assert mean.shape == sigma.shape == (2, N)


def test_some_rows_left_out_are_among_all(gp):
    rows = torch.tensor([4, 0, 11])
    every = (part[0] for part in gp.loo(gp.theta_R[None]))
    for ours, theirs in zip(gp.left_out(rows), every, strict=True):
        torch.testing.assert_close(ours, theirs[rows])


def test_sigma_and_loo_have_gradients(any_gp):
    theta = any_gp.theta_R[None].clone().requires_grad_()
    asked = [lambda t: any_gp.sigma(t, X_NEW).sum()]
    if isinstance(any_gp, DataPosterior):
        asked.append(lambda t: any_gp.loo(t)[1].sum())
    for ask in asked:
        (gradient,) = torch.autograd.grad(ask(theta), theta)
        step = 1e-5 * any_gp.theta_R[-1]
        moved = torch.zeros_like(theta)
        moved[0, -1] = step
        with torch.no_grad():
            slope = (ask(theta + moved) - ask(theta - moved)) / (2 * step)
        assert gradient[0, -1].item() == pytest.approx(slope.item(), rel=1e-4)


def test_without_data_the_error_says_so():
    gp = made("svgp")
    asked = members(DataPosterior) - members(Posterior)
    assert {"n_train", "X_train", "loo", "retrained", "conditioned_on"} <= asked
    for name in asked:
        with pytest.raises(WithoutDataError, match="found VariationalPosterior; use a calibration"):
            getattr(gp, name)
        assert not hasattr(gp, name)
    with pytest.raises(InvalidInputError, match="training data"):
        CrossValidated().fit(gp)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = gp.nonsense


# ------------------------------------------------------------------ other data


def same_answers(one, other, **close):
    theta = levels(one)
    torch.testing.assert_close(one.mean(X_NEW), other.mean(X_NEW), **close)
    torch.testing.assert_close(one.sigma(theta, X_NEW), other.sigma(theta, X_NEW), **close)
    if not isinstance(one, DataPosterior):
        return
    for a, b in zip(one.loo(theta), other.loo(theta), strict=True):
        torch.testing.assert_close(a, b, **close)
    assert one.log_likelihood() == pytest.approx(other.log_likelihood(), rel=1e-6, abs=1e-6)


def test_conditioning_on_its_own_data_changes_nothing(gp):
    close = {"rtol": 1e-6, "atol": 1e-6}
    rows = torch.arange(N)
    for again in (gp.at_rows(rows), gp.retargeted(gp.y_train)):
        assert type(again) is type(gp)
        assert again.training == gp.training
        same_answers(again, gp, **close)
    if not isinstance(gp, CentredPosterior):  # which would ask its regression about these points
        same_answers(gp.conditioned_on(X, Y), gp, **close)


def test_what_is_kept_answers_for_nothing_else(gp):
    """Factors and leave-one-out quantities are kept: not for other targets or hyperparameters."""
    own, other = gp.theta_R.unsqueeze(0), 1.5 * gp.theta_R.unsqueeze(0)
    before, elsewhere = gp.loo(own), gp.loo(other)
    assert not torch.equal(before[1], elsewhere[1])
    gp.mean_and_sigma(X_NEW)
    for again, first in zip((*gp.loo(own), *gp.loo(other)), (*before, *elsewhere), strict=True):
        torch.testing.assert_close(again, first)
    if not isinstance(gp, CentredPosterior):
        gp.loo(own)
        moved = gp.retargeted(Y.flip(0))
        fresh = gp.conditioned_on(X, Y.flip(0))
        for kept, new in zip(moved.loo(own), fresh.loo(own), strict=True):
            torch.testing.assert_close(kept, new, rtol=1e-6, atol=1e-6)


def test_parts_add_up(gp):
    rows = torch.arange(N - 6)
    part = gp.at_rows(rows)
    assert part.n_train == N - 6
    torch.testing.assert_close(part.y_train, Y[:-6])
    whole = part.extended(X[-6:], Y[-6:])
    assert whole.n_train == N
    torch.testing.assert_close(whole.X_train, X)
    torch.testing.assert_close(whole.y_train, Y)
    assert gp.subset(7, torch.Generator().manual_seed(0)).n_train == 7
    if not isinstance(gp, CentredPosterior):
        same_answers(whole, gp, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("gp", SOME_WITH_DATA, indirect=True)
def test_one_that_is_retrained_is_of_the_same_kind_and_says_how(gp):
    for start in ("same", "fresh", "warm"):
        again = gp.retrained(X[:-6], Y[:-6], start=start)
        expected = type(gp._original) if hasattr(gp, "_original") else type(gp)
        assert type(again) is expected
        assert again.n_train == N - 6
        assert isinstance(again.training, TrainingResult)
        assert np.isfinite(again.log_likelihood())


# ------------------------------------------------------------------ likelihood


def density(gp):
    """Log density per point of a GP's targets, from its covariance matrix alone."""
    theta, n = gp.theta_R.unsqueeze(0), gp.n_train
    K = gp.covariance.matrix(theta, gp.X_standardised)[0]
    if isinstance(gp, FitcPosterior):
        Kmn = gp.covariance.matrix(theta, gp._Z, gp._X)[0]
        Q = Kmn.T @ torch.linalg.solve(gp.covariance.matrix(theta, gp._Z)[0], Kmn)
        K = Q + torch.diag(K.diagonal() - Q.diagonal())
    K = K + theta[0, -1] * torch.eye(n, dtype=torch.float64)
    scale, shift = float(gp.y_units.scale), float(gp.y_units.shift)
    law = multivariate_normal(np.full(n, shift), scale**2 * K.numpy())
    return law.logpdf(gp.y_train.numpy()) / n


@pytest.mark.parametrize("name", sorted(set(WITH_DATA) - APPROXIMATE))
def test_log_likelihood_is_the_density_of_the_targets(name):
    """In the user's units; a warp counts, a map of the inputs and a mean do not."""
    gp = made(name)
    inner = gp.base if isinstance(gp, WrappedPosterior) else gp
    assert isinstance(inner, KernelPosterior)
    expected = density(inner)
    if isinstance(gp, WarpedPosterior):
        step = 1e-5
        slopes = (gp.warp.forward(Y + step) - gp.warp.forward(Y - step)) / (2 * step)
        expected += float(slopes.log().mean())
    assert gp.log_likelihood() == pytest.approx(expected, rel=1e-6, abs=1e-6)


# ------------------------------------------------------------------ files, copies, units


def test_stored_and_loaded(any_gp, request):
    name = request.node.callspec.params["any_gp"]
    writer = Writer()
    if name in NOT_STORED:
        with pytest.raises(SavedModelError, match="cannot save"):
            writer.encode(any_gp, "gp")
        return
    if name.startswith("centred"):
        pytest.importorskip("skops", reason="no skops; the extra of that name installs it")
    content = writer.encode(any_gp, "gp")
    again = Reader(writer.objects, writer.tensors).decode(content)
    assert type(again) is type(any_gp)
    assert again.training == any_gp.training
    assert again.names == any_gp.names
    same_answers(again, any_gp, rtol=0, atol=0)


def test_copied(any_gp):
    for again in (copy.copy(any_gp), copy.deepcopy(any_gp)):
        assert torch.equal(again.mean(X_NEW), any_gp.mean(X_NEW))
        assert torch.equal(again.sigma(levels(any_gp), X_NEW), any_gp.sigma(levels(any_gp), X_NEW))


@pytest.mark.parametrize(
    "name",
    marked(
        [make.__name__ for make in TRAINED if make is not of_gpytorch],
        slow={"centred_sparse"},
    ),
)
def test_units_do_not_matter(name):
    """Of the target here; 7 and 1e3 stand for kelvins and pounds."""
    gp, other = made(name), MAKERS[name](X, 1e3 * Y + 7.0)
    close = {"rtol": 1e-3, "atol": 1e-3}
    torch.testing.assert_close((other.mean(X_NEW) - 7.0) / 1e3, gp.mean(X_NEW), **close)
    sigma = other.sigma(other.theta_R[None], X_NEW) / 1e3
    torch.testing.assert_close(sigma, gp.sigma(gp.theta_R[None], X_NEW), **close)
    assert other.log_likelihood() + np.log(1e3) == pytest.approx(gp.log_likelihood(), abs=1e-3)


# ------------------------------------------------------------------ the estimator


def exact_like(gp, rows):
    """An exact GP of the rows that the hyperparameters of another one were learned from."""
    units = {"x_units": gp.x_units, "y_units": gp.y_units}
    return ExactPosterior(gp.X_train[rows], gp.y_train[rows], gp.covariance, gp.theta_R, **units)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param({"base": LinearRegression()}, marks=pytest.mark.slow),
        pytest.param({"approximation": Sparse(10)}, marks=pytest.mark.slow),
        {"approximation": Neighbours(10)},
    ],
)
def test_training_describes_the_posterior(settings):
    """Of whatever GP calibration chose, and after an update, too."""
    settings = {"base": "rbf", **settings}
    model = SharpGPRegressor(calibration=method("cv"), random_state=0, **settings)
    model.fit(X.numpy(), np.exp(2 * Y.numpy()))
    assert isinstance(model.training_, TrainingResult)
    assert model.training_ is model.posterior_.training
    inner = getattr(model.posterior_, "base", model.posterior_)
    if settings == {"base": "rbf"}:
        assert isinstance(model.posterior_, WarpedPosterior)
    else:
        learned = model.calibrated_.model.model.learned_rows
        rows = torch.arange(N) if learned is None else learned
        part = inner if inner.n_inducing else exact_like(inner, rows)
        expected = part.log_likelihood() + float(inner.y_units.scale.log())
        assert model.training_.log_likelihood == pytest.approx(expected, abs=1e-6)
    model.update(X_NEW.numpy(), np.exp(2 * model.predict(X_NEW.numpy())))
    assert model.training_ is model.posterior_.training


def test_mapped_inputs_are_the_users():
    gp = made("mapped")
    assert isinstance(gp, MappedPosterior)
    assert not torch.allclose(gp.base.X_train, gp.X_train)
