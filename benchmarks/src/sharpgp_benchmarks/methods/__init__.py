"""Baselines that only the experiments compare with, registered by the entry points sharpgp.methods.

==================  ===================================  ================================
name                location and spread                  scores that give ``beta``
==================  ===================================  ================================
``kuleshov22``      a network over the GP's quantiles    held out
``fully_bayesian``  a mixture over hyperparameters       none
``capone22``        under bounding hyperparameters       none
==================  ===================================  ================================
"""
