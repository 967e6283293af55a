"""Baselines that only the experiments compare with, registered by the entry points sharpgp.methods.

==================  ===================================  ================================
name                location and spread                  scores that give ``beta``
==================  ===================================  ================================
``kuleshov22``      a network over the GP's quantiles    held out
``fully_bayesian``  a mixture over hyperparameters       none
``capone22``        under bounding hyperparameters       none
==================  ===================================  ================================
"""

from sharpgp._validation import as_count


def check_counts(**counts: object) -> None:
    """Raise unless every one of the named values is a whole number of at least 1.

    Examples
    --------
    >>> check_counts(warmup=100, samples=0)
    Traceback (most recent call last):
    ...
    sharpgp.exceptions.InvalidInputError: samples: expected a whole number of at least 1, found 0
    """
    for name, count in counts.items():
        as_count(count, name, least=1)
