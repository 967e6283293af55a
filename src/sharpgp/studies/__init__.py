"""Floor 6: the paper's experiments and the evidence behind this library, on one framework.

A :class:`~sharpgp.studies.task.Task` says what to compute, :func:`~sharpgp.studies.run.run`
computes it on any engine, a :class:`~sharpgp.studies.store.Store` keeps one file per task, and
tables are made from these files alone.  ``sharpgp bench`` is the command line; nothing else imports
this package.
"""
