"""Other libraries' loops on the experiments of :mod:`laboratory`, each as its own pages have it.

All are told the same points and results.  Optuna and BayBE need packages of their own.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction, LogExpectedImprovement
from botorch.acquisition.analytic import LogConstrainedExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP, ModelListGP, SingleTaskGP
from botorch.models.transforms.outcome import Standardize
from botorch.optim import optimize_acqf
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from sharpgp._extras import LABORATORY, need
from sharpgp.bo import Log, Optimiser
from sharpgp.bo.constraints import Region
from sharpgp.bo.space import Space
from sharpgp_benchmarks.optimisation.laboratory import Experiment

#: Of BoTorch's searches.
RESTARTS, RAW_SAMPLES = 4, 128

Settings = dict[str, Any]
Results = Mapping[str, float]


class Peer(ABC):
    """Asks for settings, and is told all results by name; the first is to be large."""

    def __init__(self, experiment: Experiment, seed: int, design: int) -> None:
        self.experiment, self.seed, self.design = experiment, seed, design

    @abstractmethod
    def ask(self) -> Settings:
        """The next settings."""

    @abstractmethod
    def tell(self, settings: Settings, results: Results) -> None:
        """What a run with these settings gave."""

    def levels(self) -> list[float]:
        """Predictive probabilities of values below those that were told for what was asked."""
        return []


class Ours(Peer):
    """The optimiser of this library."""

    def __init__(self, experiment: Experiment, seed: int, design: int, **settings: Any) -> None:
        super().__init__(experiment, seed, design)
        self.loop = Optimiser(
            experiment.inputs,
            constraints=experiment.constraints,
            objectives={"value": "max"},
            limits=[f"{name} <= {most}" for name, most in experiment.limits.items()],
            design=design,
            random_state=seed,
            **settings,
        )

    def ask(self) -> Settings:
        point: Any = self.loop.ask()
        return dict(point)

    def tell(self, settings: Settings, results: Results) -> None:
        self.loop.tell(settings, dict(results))

    def levels(self) -> list[float]:
        return [run.level for run in self.loop.record.runs if run.level is not None]


class BoTorch(Peer):
    """Log expected improvement, times the probability of meeting limits, of its default models."""

    def __init__(self, experiment: Experiment, seed: int, design: int) -> None:
        super().__init__(experiment, seed, design)
        self.space = Space.of(experiment.inputs)
        self.region = Region(self.space, experiment.constraints)
        self.Z = torch.zeros(0, self.space.d, dtype=torch.float64)
        self.Y = torch.zeros(0, 1 + len(experiment.limits), dtype=torch.float64)
        self.model: Any = None
        self.found: list[float] = []
        torch.manual_seed(seed)

    def ask(self) -> Settings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            z = self._best(self._acquisition())
        (settings,) = self.space.points(self.space.from_unit(z.detach()))
        return dict(settings)

    def tell(self, settings: Settings, results: Results) -> None:
        z = self.space.to_unit(self.space.codes(settings))
        y = torch.tensor([[results["value"], *map(results.__getitem__, self.experiment.limits)]])
        if self.model is not None:
            with torch.no_grad():
                first = self.model.models[0].posterior(z, observation_noise=True)
                score = (y[0, 0] - first.mean[0, 0]) / first.variance[0, 0].sqrt()
            self.found.append(float(torch.special.ndtr(score)))
        self.Z, self.Y = torch.cat([self.Z, z]), torch.cat([self.Y, y.double()])

    def levels(self) -> list[float]:
        return self.found

    def _trained(self, y: Tensor) -> SingleTaskGP:
        kinds = [j for j, count in enumerate(self.space.categories) if count]
        if kinds:
            model: SingleTaskGP = MixedSingleTaskGP(
                self.Z, y, cat_dims=kinds, outcome_transform=Standardize(1)
            )
        else:
            model = SingleTaskGP(self.Z, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def _acquisition(self) -> AcquisitionFunction:
        self.model = ModelListGP(*(self._trained(y.unsqueeze(-1)) for y in self.Y.unbind(1)))
        limits = list(self.experiment.limits.values())
        met = (self.Y[:, 1:] <= torch.tensor(limits, dtype=torch.float64)).all(1)
        with torch.no_grad():
            means = self.model.models[0].posterior(self.Z).mean[:, 0]
        best = float(means[met].max() if bool(met.any()) else means.min())
        if not limits:
            return LogExpectedImprovement(self.model.models[0], best_f=best)
        bounds: dict[int, tuple[float | None, float | None]]
        bounds = {k + 1: (None, most) for k, most in enumerate(limits)}
        return LogConstrainedExpectedImprovement(
            self.model, best_f=best, objective_index=0, constraints=bounds
        )

    def _best(self, acquisition: AcquisitionFunction) -> Tensor:
        bounds = self.space.unit_bounds
        if bool(self.space.whole.any()):
            point, _ = optimize_acqf_mixed_alternating(
                acquisition,
                bounds,
                discrete_dims=self.space.steps(categorical=False),
                cat_dims=self.space.steps(categorical=True),
                q=1,
                num_restarts=RESTARTS,
                raw_samples=RAW_SAMPLES,
            )
        else:
            point, _ = optimize_acqf(
                acquisition,
                bounds,
                q=1,
                num_restarts=RESTARTS,
                raw_samples=RAW_SAMPLES,
                equality_constraints=self.region.equalities or None,
            )
        found: Tensor = point
        return found


class Optuna(Peer):
    """A sampler of Optuna, ``"gp"`` or ``"tpe"``.

    Limits are its ``constraints_func``.  It has no mixtures: inputs of one are drawn between 0 and
    1, and divided by their sum.
    """

    def __init__(self, experiment: Experiment, seed: int, design: int, sampler: str) -> None:
        super().__init__(experiment, seed, design)
        need("optimisers", "optuna", distribution=LABORATORY)
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        limits = experiment.limits

        def excess(trial: Any) -> tuple[float, ...]:
            return tuple(trial.user_attrs[name] - most for name, most in limits.items())

        shared: Settings = {"seed": seed, "n_startup_trials": design}
        shared |= {"constraints_func": excess} if limits else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # both samplers call some of this experimental
            made = (
                optuna.samplers.GPSampler(**shared, deterministic_objective=not experiment.noise)
                if sampler == "gp"
                else optuna.samplers.TPESampler(**shared)
            )
        self.study = optuna.create_study(direction="maximize", sampler=made)
        self.space = {name: _distribution(one) for name, one in experiment.inputs.items()}
        self.make = optuna.trial.create_trial
        self.trial: Any = None

    def ask(self) -> Settings:
        self.trial = self.study.ask(self.space)
        settings = dict(self.trial.params)
        for one in self.experiment.constraints:
            shares = {name: settings[name] + 1e-9 for name in one.names}  # all may be 0
            total = math.fsum(shares.values()) / one.total
            settings |= {name: share / total for name, share in shares.items()}
        return settings

    def tell(self, settings: Settings, results: Results) -> None:
        value, rest = results["value"], {k: v for k, v in results.items() if k != "value"}
        if self.trial is None:  # a point of the design
            excess = [rest[name] - most for name, most in self.experiment.limits.items()]
            self.study.add_trial(
                self.make(
                    params=settings,
                    distributions=self.space,
                    value=value,
                    user_attrs=rest,
                    system_attrs={"constraints": excess},
                )
            )
            return
        for name, one in rest.items():
            self.trial.set_user_attr(name, one)
        self.study.tell(self.trial, value)
        self.trial = None


def _distribution(one: Any) -> Any:
    from optuna import distributions as known

    if isinstance(one, Log):
        return known.FloatDistribution(one.low, one.high, log=True)
    if isinstance(one, range):
        return known.IntDistribution(one[0], one[-1])
    if isinstance(one, tuple):
        return known.FloatDistribution(*map(float, one))
    return known.CategoricalDistribution(one)


class BayBE(Peer):
    """BayBE's campaign on a hybrid space; it has no limits on outcomes."""

    def __init__(self, experiment: Experiment, seed: int, design: int) -> None:
        super().__init__(experiment, seed, design)
        need("optimisers", "baybe", distribution=LABORATORY)
        from baybe import Campaign
        from baybe.constraints import ContinuousLinearConstraint
        from baybe.parameters import (
            CategoricalParameter,
            NumericalContinuousParameter,
            NumericalDiscreteParameter,
        )
        from baybe.searchspace import SearchSpace
        from baybe.targets import NumericalTarget

        torch.manual_seed(seed)
        self.text: dict[str, dict[str, Any]] = {}
        parameters: list[Any] = []
        for name, one in experiment.inputs.items():
            if isinstance(one, Log):
                ends = math.log10(one.low), math.log10(one.high)
                parameters.append(NumericalContinuousParameter(name, ends))
            elif isinstance(one, range):
                parameters.append(NumericalDiscreteParameter(name, list(one)))
            elif isinstance(one, tuple):
                parameters.append(NumericalContinuousParameter(name, one))
            else:
                self.text[name] = {str(value): value for value in one}
                parameters.append(CategoricalParameter(name, list(self.text[name])))
        sums = [
            ContinuousLinearConstraint(list(one.names), "=", [1.0] * len(one.names), one.total)
            for one in experiment.constraints
        ]
        space = SearchSpace.from_product(parameters, sums)
        self.campaign = Campaign(space, NumericalTarget("value").to_objective())

    def ask(self) -> Settings:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (row,) = self.campaign.recommend(1).to_dict("records")
        settings = {name: self.text[name][v] if name in self.text else v for name, v in row.items()}
        for name, one in self.experiment.inputs.items():
            if isinstance(one, Log):
                settings[name] = min(max(10.0 ** settings[name], one.low), one.high)
            elif isinstance(one, range):
                settings[name] = round(settings[name])
        return settings

    def tell(self, settings: Settings, results: Results) -> None:
        import pandas as pd

        row: Settings = {"value": results["value"]}
        for name, one in self.experiment.inputs.items():
            value = settings[name]
            row[name] = math.log10(value) if isinstance(one, Log) else value
            if name in self.text:
                row[name] = str(value)
        self.campaign.add_measurements(pd.DataFrame([row]))


#: What is compared, by name.
PEERS: dict[str, Callable[[Experiment, int, int], Peer]] = {
    "logei": Ours,
    "ucb": partial(Ours, acquisition="ucb"),
    "botorch_logei": BoTorch,
    "optuna_gp": partial(Optuna, sampler="gp"),
    "optuna_tpe": partial(Optuna, sampler="tpe"),
    "baybe": BayBE,
}
