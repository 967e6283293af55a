"""Methods that the paper compares with, one file each; importing them registers them."""

from sharpgp.calibration.baselines.capone22 import Capone22
from sharpgp.calibration.baselines.fully_bayesian import FullyBayesian
from sharpgp.calibration.baselines.kuleshov18 import Kuleshov18
from sharpgp.calibration.baselines.kuleshov22 import Kuleshov22
from sharpgp.calibration.baselines.marx22 import Marx22
from sharpgp.calibration.baselines.vanilla import Vanilla
from sharpgp.calibration.baselines.vovk20 import Vovk20

__all__ = [
    "Capone22",
    "FullyBayesian",
    "Kuleshov18",
    "Kuleshov22",
    "Marx22",
    "Vanilla",
    "Vovk20",
]
