"""The paper's experiments and the evidence behind sharpgp, on one framework.

A :class:`~sharpgp_benchmarks.task.Task` says what to compute, :func:`~sharpgp_benchmarks.run.run`
computes it on any engine, a :class:`~sharpgp_benchmarks.store.Store` keeps one file per task, and
tables are made from these files alone.  ``sharpgp bench`` is the command line; the library finds it
by an entry point and imports nothing of this package.
"""

__version__ = "0.1.0"
