"""sharpgp and the peers a user would pick instead, on the same splits.

``sharpgp bench peers --out FOLDER`` runs it, ``sharpgp bench peers-table FOLDER`` prints what it
found relative to RK.  ``--datasets further`` takes thirty sets outside the paper
(:mod:`sharpgp_benchmarks.extra_sets`), which need no download; ``wine-distinct`` is wine without
the copies of its rows, which a model that remembers training rows gains by.

Protocol.  The rows of a data set are shuffled by the seed into training (60 %, at most ``--most``),
calibration (a third of that, to the nearest ``C`` with ``C + 1`` a multiple of 20, so that every
conformal method's 90 and 95 % intervals end at whole ranks) and test rows (the rest, at most
2,000).  Methods that hold data out calibrate on the calibration part; methods that do not
(``default``, ``cv``, CV+, leave-one-out, plain GPs) are given training and calibration part
together.  Widths, interval scores and CRPS are in standard deviations of the data set's target.
Seconds are wall time of fitting, calibrating and predicting, with the fit of a GP that several
methods share counted for each.

Of this library there are ``default`` (``SharpGPRegressor()`` as it is: a pool of models, ``cv`` up
to 5,000 rows and beyond that ``exact`` with a quarter of them held out), ``default-rounded`` (its
``predict_dist(X).rounded()``, for targets that are a few whole numbers), ``cv`` and ``exact`` (the
same pool, with one calibration whatever the number of rows), ``one-gp`` (``cv`` with one squared
exponential GP), and methods of one such GP: RK (``kuleshov18``), ``paper``, ``vanilla``.

Peers are used as their documentation says.  Where they can take any GP they get BoTorch's.

- MAPIE 1.6's split ``StdConformityScore`` takes the lower end of the interval at rank
  ``floor(0.95 (C + 1))`` in place of ``ceil``: one rank too low unless ``C + 1`` is a multiple of
  20.  It is reported as it is.  ``crepes-norm`` and ``botorch-split`` are the same method with the
  right rank.
- crepes adds ``beta=0.01`` to every difficulty, in the target's units; 0 is given here, because
  GP standard deviations are not near 0 and the targets' units differ.
- scikit-learn's GP needs ``n^2 d`` memory for its gradient: beyond ``SKLEARN_SIZE`` its
  hyperparameters come from fewer rows, and it is then conditioned on all.
- ``mapie-cv+gp`` (J+GP) fits ten GPs from scratch, ``gpyconform`` inverts a matrix for each test
  row; they are left out beyond ``MOST_ROWS``.
- RK (``kuleshov18``) and CQR have a symmetric and a centred interval.  Each data set's table shows
  the one with the better interval score on average over seeds, which favours RK and CQR: the
  choice looks at test data.  ``exact``, ``cv`` and ``paper`` are shown with their default interval.
"""
