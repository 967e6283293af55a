"""What changes with the number of rows: every threshold, and why it is where it is.

==========  =========  ===========================  ===============================================
rows        on a GPU   what happens                 why there
==========  =========  ===========================  ===============================================
from 40                spreads are learned          fewer scores are too few to judge one by
from 300               starts run side by side      fewer take no time
from 1500              starts are tried for 8       measured: they end alike
                       evaluations, not 20
above 400              scale models are trained by  measured: within 0.6 of the greatest likelihood,
                       a bound, above 2000 that     for half the cost at 800 points and an eighth at
                       of a part                    1,300
above 500              additive GPs are trained on  measured: trained on 500 of 800 points, the CRPS
                       a part, and only their       was within 4 % on three sets (one split each),
                       scale models are learned     for a quarter to a half of the cost
above 500              one side is searched for a   cost: the others seldom end higher
                       warp to the end
above 600              spreads are searched by a    cost: the search evaluates ``N^3`` 30 times, and
                       part                         thrice
above 800              models learn from parts of   measured: ``learned_rows``
                       800 rows, and are
                       conditioned on all
up to 5000             ``auto`` holds nothing out,  cost: ``N^3`` for every learning of every kernel
                       ``exact`` weighs models by
                       refits
above 10k              no additive GP is pooled     cost: one more sparse GP, of many features
above 10k              leaves of forests keep       measured: ``many_rows``
                       averages, and boosted trees
                       a boosted spread
above 10k              a part of the rows, which    cost: refits of every model
                       trees do without, judges
                       the models of a pool
above 10k              shapes by location, where    measured: ``many_rows``, facebook1
                       held-out rows ask for them
above 10k              neighbours are searched      cost: six times as much
                       approximately
above 30k              trees of a forest are each   cost: sorting
                       grown on a part
above 40k              10,000 rows calibrate        more would make no difference that can be seen
up to 100k             boosting starts over on all  cost
                       rows, once the number of
                       trees is known
above 200k             boosted trees are fewer      cost: a pass through the rows for each
above 200k             leaves of forests average a  cost: a walk through every tree for each row
                       part of the targets
above 1000             Vecchia's likelihood is      cost: a search among earlier points for each
                       that of a part
above 1500             neighbours' lengthscales     cost: ``N^3`` per gradient
                       are those of a part
from 2000              ``auto`` takes a GPU         measured: ``exact_or_sparse``
above 2000  none       a single GP is trained on a  measured: ``exact_or_sparse``
                       part, conditioned on all
above 3000  10,000     GPs are sparse where a       measured, quality against time:
                       method searches with them    ``exact_or_sparse``
above 10k   by memory  Matern GPs predict from      measured: ``exact_or_sparse``,
                       neighbours, with up to 10    ``many_rows``; beyond, 8 N^2 bytes, and N^2 for
                       features (50 on a GPU);      each prediction
                       all others are sparse
above 50k   none       no sparse GP is pooled       cost: training sees every row 20 times
                       beside neighbours
above 100k             64 neighbours, not 128       cost: of a prediction, a third; ``many_rows``
above 3000  10,000     scale models are sparse      cost: one more matrix
above 3000             operations of an exact GP    measured: below, what threads round differently
                       use several threads          moved searches by 2e-2 (``test_determinism``)
above 4000             starts are tried on a part   cost: four descents of ``N^3`` each
above 4000             no GP on a warped target     cost: a second training
above 5000             one matrix, in place         measured, memory: ``large_data loo_memory``
above 20k   200k       sparse training in batches   cost: a pass through all rows per step
above 100k             ``sharpgp fit`` draws a      cost: minutes of a fit; the number is in
                       sample of a file             :mod:`sharpgp.tabular.files`
==========  =========  ===========================  ===============================================

*Measured* names the script, *cost* is a choice of what a user may have to wait for.  By points per
hyperparameter there is one more, the prior on lengthscales: :mod:`sharpgp.gp.priors`.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sharpgp._stored import stored
from sharpgp._validation import as_count
from sharpgp.exceptions import InvalidInputError

#: Training points up to which a GP is exact unless the user says otherwise, by kind of device:
#: where a method searches with it, so that each step costs ``N^3``; ...
MOST_EXACT = {"cpu": 3000, "cuda": 10_000}
#: ... and where its hyperparameters stay, so that one factorisation is all there is; on a GPU as
#: many more as this number of matrices of all points fits into its free memory.
MOST_CONDITIONED, MATRICES = {"cpu": 10_000, "cuda": 10_000}, 8
#: Training points up to which a scale model is exact.
MOST_SCALED = {"cpu": 3000, "cuda": 10_000}
#: Rows that one learning of a model sees at most: hyperparameters, warp, spread and scale model.
LEARNED_ROWS = 800
#: Training points up to which the hyperparameters of a single exact GP are trained on all of them,
#: by kind of device; and those of the random part that they are trained on beyond.
MOST_LEARNED_WHOLE = {"cpu": 2000, "cuda": 10**9}
PART_ROWS = 1500
#: Inducing inputs of a sparse GP, unless the user says otherwise.
INDUCING = 300
#: Neighbours that a nearest-neighbour GP predicts from, unless the user says otherwise; training
#: points up to which it does; and neighbours beyond, where they are nearer.
NEIGHBOURS, MOST_WITH_ALL_NEIGHBOURS, FEWER_NEIGHBOURS = 128, 100_000, 64
#: Features up to which ``"auto"`` looks for neighbours, by kind of device.
MOST_NEAR_FEATURES = {"cpu": 10, "cuda": 50}
#: Points whose conditional densities stand for all in the likelihood of a nearest-neighbour GP.
MOST_CONDITIONALS = 1000
#: Training rows from which ``device="auto"`` takes a GPU, where there is one.
LEAST_ON_GPU = 2000
#: Training points up to which every operation runs on one thread: what the defaults fit exactly.
MOST_ON_ONE_THREAD = 3000
#: Training points beyond which one matrix at a time is worked on in place.
MOST_BATCHED = 5000

#: Training points of an additive GP that its hyperparameters are trained on, at most.
MOST_ADDITIVE = 500
#: Features up to which ``base="auto"`` pools an additive GP, which costs in proportion to them.
#: With more, rows for each of them up to which it does, too, and rows times features.
MOST_ADDITIVE_FEATURES, FEW_ROWS_PER_FEATURE, MOST_ADDITIVE_VALUES = 20, 3, 15_000

#: Evaluations that each start gets before only the best one goes on; and where there are so many
#: training points that most starts lead to the same maximum.
TRIED_FOR, LEAST_TRIED_BRIEFLY, TRIED_BRIEFLY = 20, 1500, 8
#: Training points from which starts run side by side.
LEAST_SIDE_BY_SIDE = 300
#: Training points beyond which starts are tried on a part of them only.
MOST_FROM_SCRATCH = 4000
#: Rows of that part, of the exact GP whose hyperparameters sparse training starts from, and of the
#: one whose hyperparameters a nearest-neighbour GP takes.
FIRST_ROWS = {"exact": 2000, "sparse": 1000, "neighbours": 1500}
#: Rows up to which every step of sparse training sees all of them, by kind of device.
MOST_FULL_BATCH = {"cpu": 20_000, "cuda": 200_000}
#: Rows of a batch, beyond.
BATCH_ROWS = {"cpu": 10_000, "cuda": 50_000}

#: Rows that calibrate.
MOST_CALIBRATING = 10_000

#: Training points from which a spread is learned.
LEAST_LEARNED = 40
#: Points whose leave-one-out quantities a search of the spread uses at most.
MOST_SEARCHED = 600
#: Points up to which a scale model's hyperparameters maximise the likelihood of all; beyond, they
#: maximise a bound of it, of this many points at most, of which so many are inducing inputs.
MOST_TRAINED, MOST_BOUNDED, SCALE_INDUCING = 400, 2000, 100
#: Points that a GP on a warped target is trained on, at most; and those up to which a search for a
#: warp may end on each side of the targets.  Beyond, only the one that is ahead early goes on.
MOST_WARPED, MOST_FROM_SIDES = 4000, 500
#: Rows up to which ``calibration="auto"`` holds nothing out, and ``exact`` weighs models by refits;
#: beyond, by leave-one-out.
MOST_WITHOUT_HOLDOUT = 5000
#: Rows up to which ``base="auto"`` pools a sparse GP beside neighbours, by kind of device.
MOST_WITH_SPARSE = {"cpu": 50_000, "cuda": 10**9}
#: Training points up to which all of them are left out in turn; beyond, a part of them tells how
#: good a model is.
MOST_LEFT_OUT = 10_000
#: Share of that part among all points, and points that it has at most.
JUDGING_SHARE, MOST_JUDGING = 0.1, 5000
#: Rows that each tree of a forest is grown on at most, where its leaves are averaged.
MOST_GROWN_ON = 30_000
#: Rows whose targets these leaves average at most.
MOST_IN_LEAVES = 200_000
#: Rows times trees of boosting at most, beyond 300 trees.
MOST_BOOSTED = 400_000_000
#: Rows up to which trees are boosted once more, on all of them, when their number is known.
MOST_BOOSTED_AGAIN = 100_000
#: Rows whose residuals teach boosting the spread, at most.
MOST_SPREAD_FROM = 50_000


@stored("Sparse", m=int)
@dataclass(frozen=True)
class Sparse:
    """``approximation=`` for a sparse GP with ``m`` inducing inputs.

    Examples
    --------
    >>> Sparse(m=100)
    Sparse(m=100)
    """

    m: int = INDUCING


@stored("Neighbours", m=int)
@dataclass(frozen=True)
class Neighbours:
    """``approximation=`` for a GP that predicts every point from its ``m`` nearest neighbours.

    Examples
    --------
    >>> Neighbours(m=100)
    Neighbours(m=100)
    """

    m: int = NEIGHBOURS


#: What ``approximation=`` takes.
Approximation = str | Sparse | Neighbours


def approximation_for(
    n_train: int,
    device_type: str,
    approximation: Approximation = "auto",
    *,
    searched: bool = True,
    n_features: int | None = None,
) -> Sparse | Neighbours | None:
    """The approximation that ``n_train`` points get; None for an exact GP.

    ``"auto"`` is exact up to :data:`MOST_EXACT` points, or :func:`most_conditioned` where nobody
    searches with the GP.  Beyond, it is one of neighbours where nobody searches with it and the
    kernel is a Matern one of at most :data:`MOST_NEAR_FEATURES` features, and sparse otherwise;
    ``n_features`` is None for any other kernel.  Neighbours are fewer beyond
    :data:`MOST_WITH_ALL_NEIGHBOURS` points, unless their number is given.

    Examples
    --------
    >>> approximation_for(500, "cpu"), approximation_for(50_000, "cpu")
    (None, Sparse(m=300))
    >>> approximation_for(50_000, "cpu", searched=False, n_features=8)
    Neighbours(m=128)
    >>> print(approximation_for(5000, "cpu"), approximation_for(5000, "cpu", searched=False))
    Sparse(m=300) None
    >>> approximation_for(500, "cpu", Sparse(600)), approximation_for(500, "cpu", "neighbours")
    (Sparse(m=500), Neighbours(m=128))
    >>> approximation_for(10**6, "cpu", "neighbours")
    Neighbours(m=64)
    """
    if approximation == "exact":
        return None
    if approximation == "auto":
        if n_train <= (MOST_EXACT[device_type] if searched else most_conditioned(device_type)):
            return None
        near = n_features is not None and n_features <= MOST_NEAR_FEATURES[device_type]
        approximation = "neighbours" if near and not searched else "sparse"
    if approximation == "sparse":
        return Sparse(min(INDUCING, n_train))
    if approximation == "neighbours":
        few = n_train > MOST_WITH_ALL_NEIGHBOURS
        return Neighbours(FEWER_NEIGHBOURS if few else NEIGHBOURS)
    if isinstance(approximation, Sparse):
        return Sparse(min(as_count(approximation.m, "Sparse: m", least=1), n_train))
    if isinstance(approximation, Neighbours):
        return Neighbours(as_count(approximation.m, "Neighbours: m", least=1))
    raise InvalidInputError(
        "approximation: expected 'auto', 'exact', 'sparse', 'neighbours', Sparse(m=...) or "
        f"Neighbours(m=...), found {approximation!r}"
    )


def most_conditioned(device_type: str) -> int:
    """Training points up to which a GP whose hyperparameters stay is exact.

    Examples
    --------
    >>> most_conditioned("cpu")
    10000
    """
    least = MOST_CONDITIONED[device_type]
    if device_type != "cuda" or not torch.cuda.is_available():
        return least
    free, _ = torch.cuda.mem_get_info()
    return max(least, math.isqrt(free // (8 * MATRICES)))


def drawn_rows(n: int, most: int) -> Tensor:
    """Numbers of ``most`` of ``n`` points, always the same ones; the first ones of a larger draw.

    All of them, in their order, where there are no more.

    Examples
    --------
    >>> drawn_rows(3, 5).tolist(), len(drawn_rows(1000, 5))
    ([0, 1, 2], 5)
    >>> torch.equal(drawn_rows(1000, 5), drawn_rows(1000, 50)[:5])
    True
    """
    if n <= most:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:most]


def tried_for(n_train: int) -> int:
    """Evaluations of the likelihood of ``n_train`` points that each start gets.

    Examples
    --------
    >>> tried_for(1000), tried_for(1500)
    (20, 8)
    """
    return TRIED_BRIEFLY if n_train >= LEAST_TRIED_BRIEFLY else TRIED_FOR


def trained_rows(n_train: int, device_type: str, own: int | None = None) -> int:
    """How many of ``n_train`` points hyperparameters are trained on; ``own``: a kernel's limit.

    Examples
    --------
    >>> trained_rows(2000, "cpu"), trained_rows(9000, "cpu"), trained_rows(9000, "cuda")
    (2000, 1500, 9000)
    >>> trained_rows(2000, "cpu", own=500)
    500
    """
    whole = n_train <= MOST_LEARNED_WHOLE[device_type]
    most = n_train if whole else min(PART_ROWS, n_train)
    return most if own is None else min(most, own)
