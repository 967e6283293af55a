"""Base of models around another one, with its data and its GP."""

from sharpgp._forwarded import forwarded
from sharpgp.models.model import Model


class WrappedModel(Model):
    """A model around another one, with the other's data and GP."""

    model: Model

    gp = forwarded("model.gp")
    rows = forwarded("model.rows")
    y_train = forwarded("model.y_train")
    n_features = forwarded("model.n_features")
    device = forwarded("model.device")
