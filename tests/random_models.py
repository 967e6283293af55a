"""Random fitted models of every method and many kernels, and random damage to their files."""

import json
from typing import Any

import numpy as np
import pandas as pd
import torch
from gpytorch import constraints, kernels, priors
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes

from helpers import SETTINGS
from sharpgp import SharpGPRegressor, Sparse, persistence
from sharpgp._extras import LABORATORY_METHODS
from sharpgp.calibration import known_methods
from sharpgp.calibration.recalibrator import make_recalibrator
from sharpgp.gp.kernels.covariance import STATIONARY

#: Methods of the library.
METHODS = [name for name in known_methods() if name not in LABORATORY_METHODS.values()]


def random_kernel(rng: np.random.Generator, d: int, depth: int = 0) -> kernels.Kernel:
    """A gpytorch kernel for ``d`` features, with settings, constraints and priors drawn."""
    ard = d if rng.random() < 0.5 else None
    some = {"ard_num_dims": ard, "lengthscale_constraint": _constraint(rng)}
    if rng.random() < 0.3:
        some["lengthscale_prior"] = _prior(rng)
    if ard is None and rng.random() < 0.3:
        some["active_dims"] = (int(rng.integers(d)),)
    makers: list[Any] = [
        lambda: kernels.RBFKernel(**some),
        lambda: kernels.MaternKernel(nu=float(rng.choice([0.5, 1.5, 2.5])), **some),
        lambda: kernels.RQKernel(**some),
        lambda: kernels.PeriodicKernel(),
        lambda: kernels.LinearKernel() + kernels.RBFKernel(),
        lambda: kernels.PolynomialKernel(power=2) + kernels.RBFKernel(),
        lambda: kernels.PiecewisePolynomialKernel(q=int(rng.integers(4)), ard_num_dims=ard),
        lambda: kernels.ConstantKernel() * kernels.RBFKernel(),
    ]
    if depth < 2:
        makers += [
            lambda: random_kernel(rng, d, depth + 1) + random_kernel(rng, d, depth + 1),
            lambda: random_kernel(rng, d, depth + 1) * random_kernel(rng, d, depth + 1),
        ]
    kernel: kernels.Kernel = makers[rng.integers(len(makers))]()
    return kernel if depth else kernels.ScaleKernel(kernel)


def _constraint(rng: np.random.Generator) -> constraints.Interval | None:
    choices = [
        None,
        constraints.GreaterThan(1e-3),
        constraints.Interval(1e-3, 50.0),
        constraints.Positive(transform=torch.exp, inv_transform=torch.log),
    ]
    return choices[rng.integers(len(choices))]


def _prior(rng: np.random.Generator) -> priors.Prior:
    choices = [
        priors.GammaPrior(3.0, 6.0),
        priors.LogNormalPrior(0.1, 1.3),
        priors.NormalPrior(1.0, 2.0),
        priors.HalfCauchyPrior(0.7),
    ]
    return choices[rng.integers(len(choices))]


def random_model(seed: int) -> tuple[SharpGPRegressor, Any]:
    """A fitted model and new data to ask it about."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.integers(1, 5)), int(rng.integers(16, 60))
    X = rng.normal(rng.normal(), 10 ** rng.uniform(-3, 3), (n + 20, d))
    y = 10 ** rng.uniform(-3, 3) * (np.sin(X / X.std(0)).sum(1) + 0.2 * rng.normal(size=n + 20))
    if rng.random() < 0.3:
        X = np.asfortranarray(X)
    data: Any = pd.DataFrame(X, columns=[f"c{j}" for j in range(d)]) if seed % 3 == 0 else X
    name = METHODS[seed % len(METHODS)]
    stationary = rng.random() < 0.6
    kernel = str(rng.choice(list(STATIONARY))) if stationary else random_kernel(rng, d)
    settings = {"random_state": int(rng.integers(100)), **SETTINGS.get(name, {})}
    own = make_recalibrator(name, **settings)
    model = SharpGPRegressor(
        base=kernel,
        calibration=own if name in SETTINGS or rng.random() < 0.5 else name,
        approximation=["auto", "exact", Sparse(m=9)][rng.integers(3)],
        random_state=0,
    )
    model.fit(data[:n], y[:n])
    return model, data[n:]


def answers(model: SharpGPRegressor, X: Any) -> list[np.ndarray]:
    """Everything that a model says about new data."""
    dist = model.predict_dist(X)
    return [
        *model.predict(X, return_std=True),
        model.predict_interval(X, [0.5, 0.9]),
        model.predict_interval(X, 0.9, symmetric=True),
        model.predict_interval(X, 0.9, symmetric=False),
        model.predict_quantiles(X, [0.01, 0.3, 0.77]),
        dist.quantiles,
    ]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with one random fault, as disks, networks and people make them."""
    raw = bytearray(data)
    at, length = int(rng.integers(len(raw))), int(rng.integers(1, 64))
    fault = rng.integers(8)
    if fault == 0:
        raw[at] ^= 1 << int(rng.integers(8))
    elif fault == 1:
        raw = raw[:at]
    elif fault == 2:
        raw[at : at + length] = bytes(len(raw[at : at + length]))
    elif fault == 3:
        raw[at : at + length] = rng.bytes(length)
    elif fault == 4:
        raw[at:at] = rng.bytes(length)
    elif fault == 5:
        del raw[at : at + length]
    elif fault == 6:
        raw[: int(rng.integers(1, 9))] = rng.bytes(8)[: int(rng.integers(1, 9))]
    else:
        raw += rng.bytes(length)
    return bytes(raw)


def forged(data: bytes, rng: np.random.Generator) -> bytes:
    """The file with one value changed and the checksum made right again."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])["__metadata__"]
    tensors = from_bytes(data)
    parts = json.loads(header["content"])
    if rng.random() < 0.5:
        name = str(rng.choice(sorted(tensors)))
        tensors[name] = _forged_tensor(tensors[name], rng)
    else:
        parts = _forged_json(parts, rng)
    header["content"] = json.dumps(parts)
    header["checksum"] = persistence._checksum(header["content"], tensors)
    return bytes(to_bytes(tensors, metadata=header))


def _forged_tensor(tensor: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    flat = tensor.reshape(-1).clone()
    odd = [0, -1, 1, 3] + ([float("nan"), float("inf"), 1e38] if flat.is_floating_point() else [])
    fault = rng.integers(6)
    if fault == 0:
        flat[rng.integers(len(flat))] = odd[rng.integers(len(odd))]
        return flat.reshape(tensor.shape)
    if fault == 1:
        return flat
    if fault == 2:
        return flat[:-1]
    if fault == 3:
        return tensor.to([torch.float32, torch.int64, torch.bool][rng.integers(3)])
    if fault == 4:
        return torch.cat([tensor, tensor]) if tensor.dim() else tensor.expand(2).clone()
    return flat.reshape(1, -1)


def _forged_json(parts: Any, rng: np.random.Generator) -> Any:
    """Change one place in the tree, found by a random walk."""
    node = parts
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return parts
        key = keys[rng.integers(len(keys))]
        if isinstance(node[key], dict | list) and rng.random() < 0.85:
            node = node[key]
            continue
        odd = [None, True, -1, 0, 7, 10**15, 1e300, "x", "", [], {}, {"object": 0}, {"tuple": [1]}]
        if rng.random() < 0.2:
            del node[key]
        else:
            node[key] = odd[rng.integers(len(odd))]
        return parts
