"""The paper's method: objective, search, path, curves and the predictor that follows them."""

from sharpgp.calibration.methods.sharp.method import Sharp as Sharp
