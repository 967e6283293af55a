"""Peers beyond MAPIE, crepes, BoTorch and scikit-learn: boosting, forests, diffusion, BART.

Each is used as its documentation says, with its default hyperparameters.  Their packages come with
the extra ``league`` and are imported where they are used; GPyConform, which does not work with the
newest gpytorch, has to be installed by hand.
"""

from collections.abc import Callable
from importlib import import_module

import numpy as np
import torch

from sharpgp import calibrate
from sharpgp_benchmarks.peers.predictions import LEVELS, conformalised, gaussian, of_draws
from sharpgp_benchmarks.peers.protocol import COVERAGES, FOLDS, Case, Prediction

#: Draws for each test point of models that can only be sampled.
DRAWS = 200
#: Steps of the optimiser that trains GPyConform's GP.
STEPS = 200


def catboost_cqr(case: Case) -> Prediction:
    """CatBoost's multi-quantile loss, conformalised on the calibration part."""
    from catboost import CatBoostRegressor

    p = case.parts
    levels = ",".join(f"{level:.3f}" for level in LEVELS)
    model = CatBoostRegressor(
        loss_function=f"MultiQuantile:alpha={levels}",
        random_seed=case.seed,
        thread_count=torch.get_num_threads(),
        allow_writing_files=False,
        verbose=False,
    ).fit(p.X_train, p.y_train)
    return conformalised(model.predict(p.X_cal), p.y_cal, model.predict(p.X_test), p.y_test)


def lightgbm_cross_cqr(case: Case) -> Prediction:
    """LightGBM's quantile loss in MAPIE's cross-conformalised quantile regression."""
    from lightgbm import LGBMRegressor
    from mapie.regression import CrossConformalizedQuantileRegressor

    base = LGBMRegressor(
        objective="quantile",
        alpha=0.5,
        random_state=case.seed,
        n_jobs=torch.get_num_threads(),
        verbosity=-1,
    )
    model = CrossConformalizedQuantileRegressor(
        base, COVERAGES, cv=FOLDS, random_state=case.seed, fit_central_estimator=False
    )
    model.fit_conformalize(*case.together)
    return Prediction({"default": model.predict_interval(case.parts.X_test)[1]})


def ngboost(case: Case) -> Prediction:
    """NGBoost's Gaussian, as it is."""
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=case.seed).fit(*case.together)
    found = model.pred_dist(case.parts.X_test).params
    return gaussian(found["loc"], found["scale"], case.parts.y_test)


def ngboost_calibrated(case: Case) -> Prediction:
    """NGBoost's Gaussian, calibrated by this library on the calibration part."""
    from ngboost import NGBRegressor

    p = case.parts
    base = NGBRegressor(verbose=False, random_state=case.seed).fit(p.X_train, p.y_train)
    model = calibrate(base, p.X_cal, p.y_cal)
    ends = np.asarray(model.predict_interval(p.X_test, COVERAGES))
    crps = model.predict_dist(p.X_test).crps(p.y_test).mean()
    return Prediction({"default": ends}, float(crps))


def quantile_forest(case: Case) -> Prediction:
    """A quantile forest on all rows, conformalised by its out-of-bag quantiles."""
    from quantile_forest import RandomForestQuantileRegressor

    p, (X, y) = case.parts, case.together
    model = RandomForestQuantileRegressor(
        random_state=case.seed, n_jobs=torch.get_num_threads()
    ).fit(X, y)
    out_of_bag = model.predict(X, quantiles=list(LEVELS), oob_score=True)
    return conformalised(out_of_bag, y, model.predict(p.X_test, quantiles=list(LEVELS)), p.y_test)


def treeffuser(case: Case) -> Prediction:
    """Treeffuser's diffusion with boosted trees, as it is."""
    from treeffuser import Treeffuser

    p = case.parts
    model = Treeffuser(seed=case.seed, n_jobs=torch.get_num_threads()).fit(*case.together)
    draws = model.sample(p.X_test, n_samples=DRAWS, seed=case.seed)
    return of_draws(draws.reshape(DRAWS, -1).T, p.y_test)


def bart(case: Case) -> Prediction:
    """Bayesian additive regression trees of stochtree; draws of the posterior predictive."""
    from stochtree import BARTModel

    p, (X, y) = case.parts, case.together
    model = BARTModel()
    settings = {"random_seed": case.seed, "num_threads": torch.get_num_threads()}
    model.sample(X, y, num_mcmc=1000, general_params=settings)
    mean = model.predict(p.X_test, terms="y_hat")  # [T, S]
    std = np.sqrt(model.extract_parameter("sigma2_global"))
    noise = np.random.default_rng(case.seed).standard_normal(mean.shape)
    return of_draws(mean + std * noise, p.y_test)


def gpyconform(case: Case) -> Prediction:
    """GPyConform's full conformal prediction with a GP on all rows, both kinds of interval."""
    import gpytorch
    from gpyconform import ExactGPCP

    class Model(ExactGPCP):
        def __init__(self, X: torch.Tensor, y: torch.Tensor) -> None:
            super().__init__(X, y, gpytorch.likelihoods.GaussianLikelihood())
            self.mean_module = gpytorch.means.ConstantMean()
            base = gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1])
            self.covar_module = gpytorch.kernels.ScaleKernel(base)

        def forward(self, X: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(X), self.covar_module(X)
            )

    X, y = case.together
    spread = X.std(axis=0)
    shift, scale = X.mean(axis=0), np.where(spread > 0, spread, 1.0)
    centre, unit = y.mean(), y.std()
    model = Model(torch.from_numpy((X - shift) / scale), torch.from_numpy((y - centre) / unit))
    model = model.double()
    likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    # As in its documentation; BoTorch's fit asks for a model of its own.
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train()
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = -likelihood(model(*model.train_inputs), model.train_targets)
        loss.backward()
        optimiser.step()
    X_test = torch.from_numpy((case.parts.X_test - shift) / scale)
    bands = {}
    for band, mode in (("symmetric", "symmetric"), ("centred", "asymmetric")):
        model.cpmode = mode
        with torch.no_grad():
            found = model.eval()(X_test, confs=list(COVERAGES))
        ends = [centre + unit * np.asarray(found(coverage)) for coverage in COVERAGES]
        bands[band] = np.stack(ends, axis=2)
    return Prediction(bands)


#: By method: the package that has to be there, and the function.
LEAGUE: dict[str, tuple[str, Callable[[Case], Prediction]]] = {
    "catboost-cqr": ("catboost", catboost_cqr),
    "lightgbm-cross-cqr": ("lightgbm", lightgbm_cross_cqr),
    "ngboost": ("ngboost", ngboost),
    "ngboost-calibrated": ("ngboost", ngboost_calibrated),
    "quantile-forest": ("quantile_forest", quantile_forest),
    "treeffuser": ("treeffuser", treeffuser),
    "bart": ("stochtree", bart),
    "gpyconform": ("gpyconform", gpyconform),
}


def why_not(method: str) -> str | None:
    """Why a method cannot run here, in a line that names its package; None if it can."""
    package, _ = LEAGUE.get(method, ("sharpgp", None))
    try:
        import_module(package)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == package
        reason = "which is not installed" if missing else f"which does not load ({error})"
        return f"{method}: skipped, for it needs the package {package}, {reason}"
    return None
