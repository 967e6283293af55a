"""Trained models of other libraries: the same answers, untouched models, working calibrations."""

import copy

import gpytorch
import numpy as np
import pytest
import torch
from botorch.models import SingleTaskGP, SingleTaskVariationalGP
from botorch.models.transforms.input import (
    ChainedInputTransform,
    InputStandardize,
    Log10,
    Normalize,
    Round,
    Warp,
)
from botorch.models.transforms.outcome import Log, Standardize
from gpytorch import kernels, likelihoods, means
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    CiqVariationalStrategy,
    DeltaVariationalDistribution,
    MeanFieldVariationalDistribution,
    UnwhitenedVariationalStrategy,
    VariationalStrategy,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk

import sharpgp
from helpers import marked, method, wavy
from sharpgp.calibration import known_methods
from sharpgp.exceptions import InvalidInputError, SavedModelError
from sharpgp.gp import ExactPosterior
from sharpgp.gp.adapters import FitcPosterior
from sharpgp.gp.kernels.covariance import Stationary
from sharpgp.persistence import load, save

pytestmark = pytest.mark.filterwarnings("ignore")
D = torch.float64
X, y = map(torch.from_numpy, wavy(40))
X = X + 2.5  # positive, for logarithms
X_CAL, Y_CAL = map(torch.from_numpy, wavy(39, seed=1))
X_CAL = X_CAL + 2.5
X_NEW = torch.from_numpy(wavy(30, seed=2)[0]) + 2.5


def shaken(model, seed=0, size=0.3):
    """Random hyperparameters: agreement must not depend on training."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter, constraint in model.named_parameters_and_constraints():
            noise = torch.randn(parameter.shape, generator=generator, dtype=D).to(parameter)
            if constraint is None or constraint.enforced:
                parameter.add_(size * noise)
            else:  # the parameter is the value itself, and has to stay positive
                parameter.mul_((size * noise).exp())
    return model


def botorch_model(**settings):
    return shaken(SingleTaskGP(X, y[:, None], **settings))


class Plain(gpytorch.models.ExactGP):
    def __init__(self, kernel, mean=None, likelihood=None):
        super().__init__(X, y, likelihood or likelihoods.GaussianLikelihood())
        self.mean_module = mean or means.ConstantMean()
        self.covar_module = kernel
        self.double()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Stretched(Plain):
    def forward(self, x):
        return super().forward(2 * x)


def sgpr():
    likelihood = likelihoods.GaussianLikelihood()
    base = kernels.ScaleKernel(kernels.MaternKernel(ard_num_dims=2))
    kernel = kernels.InducingPointKernel(base, X[:12].clone(), likelihood)
    return shaken(Plain(kernel, likelihood=likelihood), size=0.1)


class Variational(gpytorch.models.ApproximateGP):
    def __init__(self, strategy=VariationalStrategy, distribution=CholeskyVariationalDistribution):
        Z = X[:12].clone()
        super().__init__(strategy(self, Z, distribution(12), learn_inducing_locations=True))
        self.mean_module = means.LinearMean(2)
        self.covar_module = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2))
        self.double()

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


GAUSSIAN = likelihoods.GaussianLikelihood().double()


def without(model, part):
    delattr(model, part)
    return model


def warped_svgp():
    return SingleTaskVariationalGP(
        X, y[:, None], inducing_points=8, input_transform=Warp(d=2, indices=[0, 1])
    )


def variational(**settings):
    model = Variational(**settings)
    model.train()
    model(X)  # gpytorch initialises the variational distribution at the first call
    return shaken(model, size=0.1)


BOTORCH = {
    "default": {},
    "normalize": {"input_transform": Normalize(2)},
    "no outcome": {"outcome_transform": None},
    "standardize": {"outcome_transform": Standardize(1), "input_transform": InputStandardize(2)},
    "some columns": {"input_transform": Normalize(2, indices=[1])},
    "chained": {
        "input_transform": ChainedInputTransform(a=Normalize(2), b=InputStandardize(2)),
    },
    "warp": {"input_transform": Warp(d=2, indices=[0, 1])},
    "log and normalize": {
        "input_transform": ChainedInputTransform(a=Log10(indices=[0]), b=Normalize(2)),
    },
    "round": {"input_transform": Round(integer_indices=[0])},
    "linear mean": {"mean_module": means.LinearMean(2), "input_transform": Normalize(2)},
    "zero mean": {"mean_module": means.ZeroMean()},
    "matern": {"covar_module": kernels.ScaleKernel(kernels.MaternKernel(1.5, ard_num_dims=2))},
    "sum": {
        "covar_module": kernels.ScaleKernel(kernels.RBFKernel(active_dims=(0,)))
        + kernels.ScaleKernel(kernels.PeriodicKernel(active_dims=(1,)))
    },
    "known noise": {"train_Yvar": torch.full_like(y[:, None], 0.03)},
}


def of_botorch(model, X):
    with torch.no_grad():
        found = model.posterior(X, observation_noise=True)
    return found.mean.squeeze(-1), found.variance.squeeze(-1).sqrt()


def of_gpytorch(model, X, likelihood=None):
    settings = gpytorch.settings
    with (
        torch.no_grad(),
        settings.fast_computations(False, False, False),
        settings.fast_pred_var(False),
    ):
        found = (likelihood or model.likelihood)(model.eval()(X))
    return found.mean, found.variance.sqrt()


def assert_agrees(posterior, expected):
    mean, std = expected
    sigma = posterior.sigma(posterior.theta_R.unsqueeze(0), X_NEW)[0]
    assert float((posterior.mean(X_NEW) - mean).abs().max()) < 1e-6
    assert float((sigma - std).abs().max()) < 1e-6
    larger = posterior.sigma(2 * posterior.theta_R.unsqueeze(0), X_NEW)[0]
    assert (larger > sigma).double().mean() > 0.9


# ------------------------------------------------------------------ the same answers


@pytest.mark.parametrize("name", BOTORCH)
def test_botorch(name):
    model = botorch_model(**copy.deepcopy(BOTORCH[name]))
    state = copy.deepcopy(model.state_dict())
    posterior = sharpgp.as_posterior(model)
    assert model.training
    assert_agrees(posterior, of_botorch(model, X_NEW))
    torch.testing.assert_close(posterior.X_train, X)
    torch.testing.assert_close(posterior.y_train, y)
    after = model.state_dict()
    assert all(torch.equal(after[key], state[key]) for key in state)
    # In evaluation mode BoTorch keeps transformed inputs; with caches that have a history.
    model.posterior(X_NEW)
    again = sharpgp.as_posterior(model)
    assert not model.training
    torch.testing.assert_close(again.mean(X_NEW), posterior.mean(X_NEW))


def test_gpytorch_exact():
    model = shaken(Plain(kernels.ScaleKernel(kernels.RQKernel())))
    posterior = sharpgp.as_posterior(model)
    assert_agrees(posterior, of_gpytorch(model, X_NEW))
    assert isinstance(posterior, ExactPosterior)


def test_gpytorch_in_float32():
    model = Plain(kernels.ScaleKernel(kernels.RBFKernel())).float()
    model.set_train_data(X.float(), y.float(), strict=False)
    posterior = sharpgp.as_posterior(model)
    mean, _ = of_gpytorch(model, X_NEW.float())
    assert posterior.mean(X_NEW).dtype == D
    assert float((posterior.mean(X_NEW) - mean).abs().max()) < 1e-3


def test_sgpr():
    model = sgpr()
    posterior = sharpgp.as_posterior(model)
    assert isinstance(posterior, FitcPosterior)
    assert posterior.n_inducing == 12
    assert_agrees(posterior, of_gpytorch(model, X_NEW))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"distribution": MeanFieldVariationalDistribution},
        {"strategy": UnwhitenedVariationalStrategy},
    ],
)
def test_svgp(settings):
    model, likelihood = variational(**settings), likelihoods.GaussianLikelihood().double()
    state = copy.deepcopy(model.state_dict())
    posterior = sharpgp.as_posterior(model, likelihood=likelihood)
    assert all(torch.equal(model.state_dict()[key], state[key]) for key in state)
    assert_agrees(posterior, of_gpytorch(model, X_NEW, likelihood))
    with pytest.raises(InvalidInputError, match="likelihood: expected"):
        sharpgp.as_posterior(model)


def test_botorch_svgp():
    model = SingleTaskVariationalGP(
        X,
        y[:, None],
        inducing_points=10,
        input_transform=Normalize(2),
        outcome_transform=Standardize(1),
    )
    model.train()
    model.model(X)
    shaken(model.model, size=0.1)
    assert_agrees(sharpgp.as_posterior(model), of_botorch(model, X_NEW))


SKLEARN = {
    "rbf": sk.RBF([0.7, 2.0]) + sk.WhiteKernel(0.05),
    "scaled": 2.5 * sk.RBF(0.8) + sk.WhiteKernel(0.05),
    "matern": sk.ConstantKernel(3.0) * sk.Matern([0.7, 1.5], nu=1.5) + 0.5 * sk.WhiteKernel(0.1),
    "smooth": sk.Matern(1.1, nu=np.inf) + sk.WhiteKernel(0.05),
    "rational": sk.RationalQuadratic(1.2, 0.7) * 2.0 + sk.WhiteKernel(0.05),
    "sum": sk.RBF(1.0) + 0.3 * sk.DotProduct(0.6) + sk.WhiteKernel(0.1),
    "product": sk.RBF(1.0) * sk.Matern(2.0, nu=2.5) + sk.WhiteKernel(0.1),
    "polynomial": 0.1 * sk.DotProduct(0.7) ** 2 + sk.ConstantKernel(0.4) + sk.WhiteKernel(0.1),
    "inner sum": 0.5 * (sk.RBF(1.0) + sk.Matern(0.5, nu=0.5)) + sk.WhiteKernel(0.1),
}


@pytest.mark.parametrize("normalize_y", [False, True])
@pytest.mark.parametrize("name", SKLEARN)
def test_sklearn(name, normalize_y):
    model = GaussianProcessRegressor(SKLEARN[name], optimizer=None, normalize_y=normalize_y)
    model.fit(X.numpy(), 3 * y.numpy() + 10)
    before = copy.deepcopy(vars(model))
    posterior = sharpgp.as_posterior(model)
    mean, std = model.predict(X_NEW.numpy(), return_std=True)
    assert_agrees(posterior, (torch.from_numpy(mean), torch.from_numpy(std)))
    torch.testing.assert_close(posterior.y_train, 3 * y + 10)
    before.pop("_rng", None)  # compares by identity
    for key, value in before.items():
        np.testing.assert_equal(getattr(model, key), value)


def test_sklearn_on_one_feature():
    kernel = sk.ExpSineSquared(1.3, 2.1) + sk.RBF(2.0)
    model = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.1, normalize_y=True)
    model.fit(X[:, :1].numpy(), y.numpy())
    mean, std = model.predict(X_NEW[:, :1].numpy(), return_std=True)
    posterior = sharpgp.as_posterior(model)
    torch.testing.assert_close(posterior.mean(X_NEW[:, :1]), torch.from_numpy(mean))
    with_noise = np.sqrt(std**2 + 0.1 * model._y_train_std**2)  # alpha is noise, too
    sigma = posterior.sigma(posterior.theta_R.unsqueeze(0), X_NEW[:, :1])[0]
    torch.testing.assert_close(sigma, torch.from_numpy(with_noise))


# ------------------------------------------------------------------ what has no such form


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: SingleTaskGP(X, X[:, :1], outcome_transform=Log()), "Log"),
        (lambda: botorch_model(train_Yvar=torch.rand_like(y[:, None])), "different"),
        (lambda: SingleTaskGP(X, torch.stack([y, y], -1)), "one output"),
        (lambda: Stretched(kernels.RBFKernel()), "forward .* Stretched"),
        (lambda: GaussianProcessRegressor(), "call fit"),
        (
            lambda: GaussianProcessRegressor(sk.Matern(nu=0.7), optimizer=None).fit(X, y),
            "Matern with nu=0.7",
        ),
        (
            lambda: GaussianProcessRegressor(sk.ExpSineSquared(), alpha=9, optimizer=None).fit(
                X, y
            ),
            "ExpSineSquared on 2 features",
        ),
        (
            lambda: GaussianProcessRegressor(
                sk.RBF() * (sk.RBF() + sk.WhiteKernel()), optimizer=None
            ).fit(X, y),
            "found WhiteKernel",
        ),
        (
            lambda: GaussianProcessRegressor(sk.PairwiseKernel(), optimizer=None).fit(X, y),
            "PairwiseKernel",
        ),
        (lambda: GaussianProcessRegressor().fit(X, torch.stack([y, y], -1)), "one output"),
        (lambda: np.zeros(3), "ndarray"),
        (lambda: Plain(kernels.RBFKernel(batch_shape=torch.Size([2]))), "kernel without a batch"),
        (
            lambda: Plain(kernels.RBFKernel(), None, likelihoods.MultitaskGaussianLikelihood(2)),
            "GaussianLikelihood, found Multitask",
        ),
        (lambda: without(Plain(kernels.RBFKernel()), "covar_module"), "without covar_module"),
        (
            lambda: SingleTaskGP(
                X, y[:, None], input_transform=Warp(d=2, indices=[0], transform_on_train=False)
            ),
            "Warp that does not",
        ),
        (
            lambda: GaussianProcessRegressor(sk.WhiteKernel(), optimizer=None).fit(X, y),
            "a kernel beside the noise",
        ),
        (
            lambda: GaussianProcessRegressor(alpha=np.linspace(1, 2, 40)).fit(X, y),
            "the same alpha",
        ),
        (
            lambda: GaussianProcessRegressor(sk.RBF() ** 2, optimizer=None).fit(X, y),
            "Exponentiation of RBF",
        ),
    ],
)
def test_other_models_are_named(make, named):
    model = make()
    with pytest.raises(InvalidInputError, match=named) as caught:
        sharpgp.as_posterior(model)
    assert "\n" not in str(caught.value)


def test_a_posterior_is_one_already(gp):
    assert sharpgp.as_posterior(gp) is gp


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: (variational(), None), "likelihood: expected that of the ApproximateGP"),
        (lambda: (variational(strategy=CiqVariationalStrategy), GAUSSIAN), "CiqVariational"),
        (lambda: (variational(distribution=DeltaVariationalDistribution), GAUSSIAN), "Gaussian"),
        (lambda: (warped_svgp(), None), "Warp in a variational GP"),
    ],
)
def test_other_variational_gps_are_named(make, named):
    model, likelihood = make()
    with pytest.raises(InvalidInputError, match=named):
        sharpgp.as_posterior(model, likelihood=likelihood)


def test_a_variational_gp_has_no_training_data_to_work_with():
    posterior = sharpgp.as_posterior(variational(), likelihood=GAUSSIAN)
    assert posterior.n_inducing == 12
    for ask in (
        lambda: posterior.n_train,
        lambda: posterior.loo(posterior.theta_R[None]),
        lambda: posterior.conditioned_on(X, y),
        lambda: posterior.retrained(X, y),
    ):
        with pytest.raises(InvalidInputError, match="a GP that knows its training data"):
            ask()


# ------------------------------------------------------------------ calibration


MODELS = {
    "botorch": lambda: sharpgp.as_posterior(botorch_model(input_transform=Normalize(2))),
    "warped": lambda: sharpgp.as_posterior(botorch_model(**copy.deepcopy(BOTORCH["warp"]))),
    "sgpr": lambda: sharpgp.as_posterior(sgpr()),
    "svgp": lambda: sharpgp.as_posterior(
        variational(), likelihood=likelihoods.GaussianLikelihood().double()
    ),
    "sklearn": lambda: sharpgp.as_posterior(
        GaussianProcessRegressor(SKLEARN["sum"], optimizer=None).fit(X.numpy(), y.numpy())
    ),
}
#: Methods that cannot work on a model, by what they need of it.
NEED_DATA = {"cv", "cv+", "exact", "loo"}
NEED_A_NAMED_KERNEL = {"fully_bayesian", "capone22"}


EVERY = sorted(set(known_methods()) - NEED_A_NAMED_KERNEL)
USUAL = ("kuleshov18", "paper", "exact")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        *(("svgp", name) for name in EVERY if name != "paper"),
        pytest.param("svgp", "paper", marks=pytest.mark.slow),
        *((model, name) for model in ("botorch", "warped") for name in USUAL),
        *(
            pytest.param(model, name, marks=pytest.mark.slow)
            for model in ("sgpr", "sklearn")
            for name in USUAL
        ),
        ("warped", "cv"),
        pytest.param("sgpr", "cv", marks=pytest.mark.slow),
    ],
)
def test_calibrations_work(model, name):
    posterior = MODELS[model]()
    if model == "svgp" and name in NEED_DATA:
        with pytest.raises(InvalidInputError, match="use a calibration that needs held-out data"):
            method(name).fit(posterior, X_CAL, Y_CAL)
        return
    calibrated = method(name).fit(posterior, X_CAL, Y_CAL)
    ends = calibrated.predict_interval(X_NEW, 0.9)
    assert torch.isfinite(ends).all()
    assert (ends[:, 0] < ends[:, 1]).all()


@pytest.mark.parametrize("name", marked(["warped", "sgpr", "sklearn"], slow={"sgpr"}))
def test_exact_keeps_its_ranks(name):
    calibrated = sharpgp.Exact().fit(MODELS[name](), X_CAL, Y_CAL)
    ends = calibrated.predict_interval(X_CAL, 0.8, symmetric=True)
    assert int(((ends[:, 0] <= Y_CAL) & (ends[:, 1] >= Y_CAL)).sum()) == 32


@pytest.mark.parametrize("name", ["warped", "sgpr"])
def test_conditioning_and_leave_one_out(name):
    posterior = MODELS[name]()
    theta = posterior.theta_R.unsqueeze(0)
    mean, sigma = posterior.loo(theta)
    rest = torch.arange(len(y)) != 7
    without = posterior.conditioned_on(X[rest], y[rest])
    torch.testing.assert_close(without.mean(X[7:8]), mean[0, 7:8])
    torch.testing.assert_close(without.sigma(theta, X[7:8])[0], sigma[0, 7:8])


def test_usual_kernels_get_the_fast_gradients():
    assert isinstance(MODELS["botorch"]().covariance, Stationary)
    assert isinstance(MODELS["sgpr"]().covariance, Stationary)


@pytest.mark.parametrize("name", ["botorch", "sgpr", "sklearn"])
def test_calibrated_models_can_be_saved(name, tmp_path):
    calibrated = sharpgp.Kuleshov18().fit(MODELS[name](), X_CAL, Y_CAL)
    save(calibrated, tmp_path / "a.sgp")
    again = load(tmp_path / "a.sgp")
    assert torch.equal(again.predict_interval(X_NEW), calibrated.predict_interval(X_NEW))
    theta = 2 * calibrated.posterior.theta_R.unsqueeze(0)
    ours, theirs = (c.posterior.sigma(theta, X_NEW) for c in (calibrated, again))
    assert torch.equal(ours, theirs)


def test_models_behind_code_cannot_be_saved(tmp_path):
    with pytest.raises(SavedModelError, match="MappedPosterior"):
        save(MODELS["warped"](), tmp_path / "b.sgp")
