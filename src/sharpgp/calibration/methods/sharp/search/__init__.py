"""The search of the paper's method: which hyperparameters make intervals sharp."""
