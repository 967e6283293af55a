"""Experiments as a laboratory has them: inputs by name, categories, constraints, limits.

All are maximised.  Optima were found by a search of every combination of categories.
"""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
import torch
from botorch.test_functions.synthetic import (
    ConstrainedGramacy,
    ConstrainedHartmann,
    ConstrainedSyntheticTestFunction,
    PressureVessel,
)

from sharpgp.bo import Log, Mixture

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """Something to be maximised, by name.

    Attributes
    ----------
    inputs : mapping
        As :class:`~sharpgp.bo.Optimiser` takes them.
    value : callable
        What a run gives without noise; with limits, that and what else is measured.
    optimum : float
        The largest value that meets constraints and limits.
    noise : float
        Deviation of the noise of the value.
    constraints : tuple of Mixture
    limits : mapping
        The largest that each further measurement may be.
    """

    inputs: Mapping[str, Any]
    value: Callable[..., Any]
    optimum: float
    noise: float = 0.0
    constraints: tuple[Mixture, ...] = ()
    limits: Mapping[str, float] = field(default_factory=dict)

    def measured(self, settings: Settings) -> dict[str, float]:
        """All that a run gives, without noise."""
        found = self.value(**settings)
        return found if isinstance(found, dict) else {"value": float(found)}

    def drawn(self, rng: random.Random) -> dict[str, Any]:
        """Random settings that meet the constraints, limits aside."""
        point: dict[str, Any] = {}
        for name, one in self.inputs.items():
            if isinstance(one, Log):
                point[name] = one.low * (one.high / one.low) ** rng.random()
            elif isinstance(one, tuple):
                point[name] = one[0] + rng.random() * (one[1] - one[0])
            else:
                point[name] = rng.choice(list(one))
        for mixture in self.constraints:
            shares = {name: -math.log(1.0 - rng.random()) for name in mixture.names}
            total = math.fsum(shares.values()) / mixture.total
            point |= {name: share / total for name, share in shares.items()}
        return point

    def regret(self, results: Mapping[str, float]) -> float:
        """How far results without noise fall short of the optimum; infinity beyond a limit."""
        if any(results[name] > most for name, most in self.limits.items()):
            return math.inf
        return max(self.optimum - results["value"], 0.0)

    @cached_property
    def usual_regret(self) -> float:
        """The median regret of random settings that meet all limits."""
        rng = random.Random(0)
        found = (self.regret(self.measured(self.drawn(rng))) for _ in range(4000))
        return median(one for one in found if math.isfinite(one))


def extraction(temperature: float, hours: float, catalyst: float, solvent: str) -> float:
    """Every solvent has its own best temperature."""
    best, top = {"water": (35, 78), "ethanol": (62, 89), "acetone": (45, 82), "thf": (75, 70)}[
        solvent
    ]
    return (
        top
        - 30 * ((temperature - best) / 30) ** 2
        - 0.4 * (hours - 7) ** 2
        - 6 * (math.log10(catalyst) + 1.5) ** 2
    )


def coupling(temperature: float, ligand: str, base: str, loading: float) -> float:
    """Ligands and bases interact; eight and four of them."""
    i, j = "ABCDEFGH".index(ligand), "wxyz".index(base)
    strength = (12, 55, 30, 48, 20, 61, 8, 40)[i] + (0, 8, -6, 14)[j] + 12 * ((i + 3 * j) % 5 == 1)
    heat = math.exp(-(((temperature - 70 - 4 * i + 6 * j) / 25) ** 2))
    return strength * heat * (1 - math.exp(-loading / 2))


def buffer(pH: float, salt: int, kind: str, enzyme: str) -> float:
    """Every buffer works around its own pH."""
    centre = {"MES": 6.1, "HEPES": 7.5, "TRIS": 8.1, "CHES": 9.3, "acetate": 4.8}[kind]
    optimum = {"a": 7.2, "b": 8.4, "c": 5.6, "d": 6.4}[enzyme]
    top = {"a": 40, "b": 47, "c": 44, "d": 35}[enzyme]
    works = math.exp(-((pH - centre) ** 2) / 1.2)
    return (
        top * math.exp(-((pH - optimum) ** 2) / 1.5) * (0.4 + 0.6 * works) - 0.02 * (salt - 9) ** 2
    )


def alloy(first: str, second: str, carbon: float) -> float:
    """Two elements of which each pair has its own best carbon."""
    i, j = "abcdef".index(first), "uvwxy".index(second)
    return (
        10 * math.cos(1.3 * i + 0.4) * math.sin(0.9 * j + 1)
        + 6 * math.cos(2.0 * j)
        - 20 * (carbon - 0.15 * i - 0.04 * j) ** 2
    )


def network(rate: float, layers: int, activation: str, optimizer: str) -> float:
    """The best rate depends on the optimizer and on the depth."""
    best = {"sgd": -1.0, "adam": -3.0, "lion": -4.0}[optimizer] - 0.1 * layers
    top = {"relu": 0.90, "tanh": 0.86, "gelu": 0.92, "selu": 0.88}[activation]
    gap = math.log10(rate) - best
    return top - 0.03 * (layers - 5) ** 2 / 9 - 0.25 * (1 - math.exp(-gap * gap / 1.5))


def switches(x: float, z: float, p: bool, q: bool, r: bool, s: bool) -> float:
    """Four switches of which two only work together."""
    on = 2.0 * (p and q) - 0.7 * p - 0.7 * q + 0.6 * r - 0.5 * s
    return on + math.cos(6 * x) - 2 * (z - 0.2 - 0.3 * (p and q)) ** 2


def needle(kind: str, x: float, z: float) -> float:
    """One of eight kinds is better, and only where the others are not at their best."""
    k = "abcdefgh".index(kind)
    centre = (0.3, 0.6) if k != 5 else (0.8, 0.25)
    far = (x - centre[0]) ** 2 + (z - centre[1]) ** 2
    return (2.0 if k == 5 else 1.0 + 0.05 * math.sin(3 * k)) * math.exp(-6 * far)


def branins(kind: str, x: float, z: float) -> float:
    """Branin's function, moved and turned by kind."""
    k = ("one", "two", "three").index(kind)
    u, v = 15 * ((x + 0.25 * k) % 1.0) - 5, 15 * (z if k < 2 else 1 - z)
    b, c = 5.1 / (4 * math.pi**2), 5 / math.pi
    value = (v - b * u * u + c * u - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(u) + 10
    return -value - (0, 4, 8)[k]


def chooser(first: str, second: str, x: float, z: float) -> float:
    """The sum of two functions that the categories choose."""
    u, v = 4 * x - 2, 4 * z - 2
    functions = {
        "rosenbrock": -((1 - u) ** 2 + 20 * (v - u * u) ** 2) / 50,
        "camel": -((4 - 2.1 * u**2 + u**4 / 3) * u * u + u * v + 4 * (v * v - 1) * v * v) / 5,
        "beale": -((1.5 - u + u * v) ** 2 + (2.25 - u + u * v * v) ** 2) / 20,
        "plane": 0.3 * u - 0.2 * v,
    }
    return functions[first] + functions[second]


_A = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
_P = np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]]) / 1e4


def hartmann(order: str, x: float, z: float, level: int) -> float:
    """Hartmann's function of three inputs, one of eleven levels, in three orders."""
    at = np.roll([x, z, level / 10], ("xyz", "yzx", "zxy").index(order))
    weight = np.array([1.0, 1.2, 3.0, 3.2]) * (0.85 if order != "yzx" else 1.0)
    return float(weight @ np.exp(-(_A * (at - _P) ** 2).sum(1)))


_UNIT = (0.0, 1.0)
_BOOLS = [False, True]
#: Ten with categories; every second one with noise of about a fiftieth of its range.
MIXED: dict[str, Experiment] = {
    "extraction": Experiment(
        {
            "temperature": (20, 80),
            "hours": range(1, 11),
            "catalyst": Log(1e-3, 1),
            "solvent": ["water", "ethanol", "acetone", "thf"],
        },
        extraction,
        89.0,
        1.0,
    ),
    "coupling": Experiment(
        {
            "temperature": (30, 130),
            "ligand": list("ABCDEFGH"),
            "base": list("wxyz"),
            "loading": (0.5, 10),
        },
        coupling,
        74.494654,
    ),
    "buffer": Experiment(
        {
            "pH": (4, 10),
            "salt": range(1, 21),
            "kind": ["MES", "HEPES", "TRIS", "CHES", "acetate"],
            "enzyme": list("abcd"),
        },
        buffer,
        45.810165,
        0.8,
    ),
    "alloy": Experiment(
        {"first": list("abcdef"), "second": list("uvwxy"), "carbon": (0, 1)}, alloy, 13.750461
    ),
    "network": Experiment(
        {
            "rate": Log(1e-6, 1),
            "layers": range(1, 11),
            "activation": ["relu", "tanh", "gelu", "selu"],
            "optimizer": ["sgd", "adam", "lion"],
        },
        network,
        0.92,
        0.008,
    ),
    "switches": Experiment(
        {"x": _UNIT, "z": _UNIT, **dict.fromkeys("pqrs", _BOOLS)}, switches, 2.2
    ),
    "needle": Experiment({"kind": list("abcdefgh"), "x": _UNIT, "z": _UNIT}, needle, 2.0, 0.03),
    "branins": Experiment(
        {"kind": ["one", "two", "three"], "x": _UNIT, "z": _UNIT}, branins, -0.397887
    ),
    "chooser": Experiment(
        {
            "first": ["rosenbrock", "camel", "beale", "plane"],
            "second": ["rosenbrock", "camel", "beale", "plane"],
            "x": _UNIT,
            "z": _UNIT,
        },
        chooser,
        2.0,
        0.1,
    ),
    "hartmann": Experiment(
        {"order": ["xyz", "yzx", "zxy"], "x": _UNIT, "z": _UNIT, "level": range(11)},
        hartmann,
        3.862651,
    ),
}


def synthesis(temperature: float, hours: float, base: str) -> dict[str, float]:
    """Hot and long runs have the best yield, and too much of the by-product."""
    heat, strength = (temperature - 40) / 60, {"KOH": 1.0, "NaOH": 0.9, "Et3N": 0.6}[base]
    return {
        "value": 95 * strength * (1 - math.exp(-(0.3 + heat) * hours / 2)),
        "impurity": 0.08 + 0.9 * heat**2 * strength + 0.03 * hours,
    }


def blend(water: float, ethanol: float, acetone: float, thf: float, temperature: float) -> float:
    """Grams in a litre: pairs of solvents help each other, and one likes it cold."""
    pairs = 90 * ethanol * acetone + 35 * water * ethanol - 30 * thf**2 - 20 * water**2
    cold = 0.5 * acetone * (temperature - 20) / 10
    return 40 + pairs + 25 * acetone * thf - cold - ((temperature - 45) / 15) ** 2


def of_botorch(make: type[ConstrainedSyntheticTestFunction]) -> Experiment:
    """One of BoTorch's functions with limits; it is to be small there."""
    function = make().double()
    low, high = torch.as_tensor(function.bounds).double().tolist()
    inputs = {f"x{j}": ends for j, ends in enumerate(zip(low, high, strict=True))}
    names = [f"limit {k}" for k in range(function.num_constraints)]

    def value(**settings: float) -> dict[str, float]:
        X = torch.tensor([list(settings.values())], dtype=torch.float64)
        slack = (-function.evaluate_slack(X, noise=False)[0]).tolist()
        own = -float(function(X, noise=False)[0])
        return {"value": own, **dict(zip(names, slack, strict=True))}

    return Experiment(
        inputs, value, -float(function.optimal_value), limits=dict.fromkeys(names, 0.0)
    )


#: Five with limits on what is measured, or a mixture.
CONSTRAINED: dict[str, Experiment] = {
    "gramacy": of_botorch(ConstrainedGramacy),
    "ball": of_botorch(ConstrainedHartmann),
    "vessel": of_botorch(PressureVessel),
    "synthesis": Experiment(
        {"temperature": (40, 100), "hours": (1, 8), "base": ["KOH", "NaOH", "Et3N"]},
        synthesis,
        90.217218,
        limits={"impurity": 0.5},
    ),
    "blend": Experiment(
        {**dict.fromkeys(("water", "ethanol", "acetone", "thf"), (0, 1)), "temperature": (20, 80)},
        blend,
        61.913580,
        0.5,
        constraints=(Mixture("water", "ethanol", "acetone", "thf"),),
    ),
}
