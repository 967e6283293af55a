"""Families of hyperparameters: which ``theta`` a search can reach, and where it starts."""

import math
from abc import ABC, abstractmethod

import numpy as np
from torch import Tensor

from sharpgp._validation import check_choice
from sharpgp.gp.kernels.covariance import NOISE
from sharpgp.gp.posterior import Posterior

# Box of the search in standardised units; theta_R times or by 10 is always inside.
_SMALLEST, _LARGEST = 1e-3, 30.0


class Family(ABC):
    """A monotone map from search variables ``v`` to ``theta``: larger ``v``, larger ``theta``."""

    def __init__(self, posterior: Posterior) -> None:
        self.theta_R = posterior.theta_R

    #: Start of a search (``theta_R``), and a second start if it finds nothing.
    start: np.ndarray
    second_start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @abstractmethod
    def theta(self, v: Tensor) -> Tensor:
        """``theta`` [P] at the search variables ``v``."""


class Ard(Family):
    """Every searched entry of ``theta`` on its own, in logarithms."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        self._index = posterior.searched.nonzero().squeeze(-1).to(self.theta_R.device)
        self.start = self.theta_R[self._index].log().cpu().numpy()
        self.lower = np.minimum(math.log(_SMALLEST), self.start - math.log(10.0))
        self.upper = np.maximum(math.log(_LARGEST), self.start + math.log(10.0))
        # Lengthscales of the order of the distances, and noise well below the signal.
        inverse = np.arange(len(self.theta_R)) < posterior.n_inverse
        signal = float(self.theta_R[posterior.n_inverse])
        typical = np.where(inverse, 1.0 / math.sqrt(inverse.sum() or 1), self.theta_R.cpu().numpy())
        typical[NOISE] = 0.1 * signal
        self.second_start = np.log(typical[self._index.cpu().numpy()])

    def theta(self, v: Tensor) -> Tensor:
        return self.theta_R.index_put((self._index,), v.exp())


class Scaled(Family):
    """``theta = s * theta_R`` with one scalar ``s`` per level: a line search."""

    def __init__(self, posterior: Posterior) -> None:
        super().__init__(posterior)
        self.start = np.zeros(1)
        self.second_start = np.full(1, math.log(3.0))
        self.lower = np.full(1, -math.log(100.0))
        self.upper = np.full(1, math.log(100.0))

    def theta(self, v: Tensor) -> Tensor:
        return self.theta_R * v.exp()


#: ``shared`` searches the same space as ``ard`` but gives all levels one ``theta``.
FAMILIES: dict[str, type[Family]] = {"ard": Ard, "scaled": Scaled, "shared": Ard}


def get_family(name: str) -> type[Family]:
    """Family by name; an unknown name gets an error that lists the known ones."""
    check_choice(name, "family", FAMILIES)
    return FAMILIES[name]
