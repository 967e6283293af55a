"""``as_posterior``: which adapter a model gets."""

from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.models import GP, ApproximateGP, ExactGP
from sklearn.base import BaseEstimator

from sharpgp.exceptions import InvalidInputError
from sharpgp.gp.adapters.exact import from_exact_gp
from sharpgp.gp.adapters.variational import from_approximate_gp
from sharpgp.gp.posterior import Posterior

_KNOWN = (
    "a trained BoTorch SingleTaskGP, gpytorch ExactGP (also with an InducingPointKernel) or "
    "ApproximateGP, or scikit-learn GaussianProcessRegressor"
)


def as_posterior(
    model: GP | BaseEstimator, *, likelihood: GaussianLikelihood | None = None
) -> Posterior:
    r"""A trained GP of another library as a posterior that recalibrators work on.

    Its mean is the model's own predictive mean and ``sigma(theta_R, x)`` the model's standard
    deviation of a new observation, noise included, both to rounding.  The model is read, never
    changed; everything is computed in float64.

    Parameters
    ----------
    model : trained model
        - a BoTorch ``SingleTaskGP`` with one output, its input transforms and a ``Standardize``
          outcome transform;
        - a gpytorch ``ExactGP`` whose ``forward`` is the prior given by its ``mean_module`` and
          ``covar_module``; with an ``InducingPointKernel`` it is an SGPR;
        - a gpytorch ``ApproximateGP`` (SVGP), or BoTorch's ``SingleTaskVariationalGP``;
        - a scikit-learn ``GaussianProcessRegressor``.
    likelihood : gpytorch GaussianLikelihood, optional
        For an ``ApproximateGP``, which has none of its own.

    Returns
    -------
    Posterior

    Raises
    ------
    InvalidInputError
        For any other model; the message names the kernel, transform or likelihood.

    Notes
    -----
    Prior means and nonlinear transforms stay as they were trained, whatever ``theta``.  ``cv``
    retrains exact and SGPR models on parts of their data, kernel and noise included.  An SVGP keeps
    its variational distribution in whitened coordinates, for every ``theta``; it has no
    leave-one-out predictions, so ``exact`` and ``cv`` do not apply to it.

    Examples
    --------
    >>> import numpy as np
    >>> import torch
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.cos(37 * X[:, 0])
    >>> model = GaussianProcessRegressor(RBF() + WhiteKernel(0.1)).fit(X, y)
    >>> posterior = as_posterior(model)
    >>> mean, std = model.predict(X, return_std=True)
    >>> bool(np.allclose(posterior.mean(torch.from_numpy(X)), mean))
    True
    """
    if isinstance(model, Posterior):
        return model
    if type(model).__name__ == "GaussianProcessRegressor":
        # Takes half a second to import, and few need it.
        from sharpgp.gp.adapters.sklearn import from_sklearn

        return from_sklearn(model)
    if isinstance(model, ExactGP):
        return from_exact_gp(model)
    inner = getattr(model, "model", None)  # BoTorch keeps the ApproximateGP inside
    if isinstance(model, ApproximateGP) or isinstance(inner, ApproximateGP):
        return from_approximate_gp(model, likelihood)
    raise InvalidInputError(f"model: expected {_KNOWN}, found {type(model).__name__}")
