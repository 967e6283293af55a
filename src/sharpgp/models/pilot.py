"""A pilot: of many rows, some tell which models cannot count, before these meet all rows."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from sharpgp.models.model import Learner
from sharpgp.models.pool import PooledModel, at_common_rows, pooled
from sharpgp.models.splitters import quick_pairs
from sharpgp.policy import LEARNINGS, PILOT_MARGIN, PILOT_ROWS, drawn_rows
from sharpgp.rows import Rows


def promising(
    models: Mapping[str, Learner],
    rows: Rows,
    y: Tensor,
    labels: Tensor,
    learned: Tensor,
    seed: int,
) -> list[str]:
    """Names of the models that a pool of :data:`~sharpgp.policy.PILOT_ROWS` rows does not rule out.

    Models with a weight count.  One without may catch up if it learns everything again from all
    rows, as trees do, unless its CRPS is :data:`~sharpgp.policy.PILOT_MARGIN` times the best.

    Parameters
    ----------
    models : mapping from names to models
        Two or more: GPs as learned from the rows ``learned``, by number; others ungrown.
    rows : Rows [N]
    y : Tensor [N]
    labels : Tensor [N]
        Of rows that belong together only one takes part, and none beside a learned one.
    learned : Tensor [L]
    seed : int

    Examples
    --------
    >>> from sharpgp.models.bases import Bases
    >>> X = torch.linspace(0, 6, 2500, dtype=torch.float64)[:, None]
    >>> y = X[:, 0].sin() + 0.01 * torch.cos(37 * X[:, 0])
    >>> models = Bases(["rbf", "boosted_trees"]).learn(X[:300], y[:300])
    >>> every = torch.arange(2500)
    >>> promising(models, Rows(X), y, every, every[:300], seed=0)
    ['rbf']
    """
    drawn = drawn_rows(len(y), 2 * PILOT_ROWS - 1).to(learned)
    new = drawn[~torch.isin(labels[drawn], labels[learned])]
    once = np.unique(labels[new].cpu().numpy(), return_index=True)[1]
    others = new[torch.from_numpy(once).to(new).sort().values][: PILOT_ROWS - len(learned)]
    if len(others) < PILOT_ROWS // 2:
        return list(models)
    part = torch.cat([learned, others])
    known, every = (torch.arange(len(one), device=y.device) for one in (learned, part))
    given = rows[part], y[part], known, quick_pairs(every, LEARNINGS, seed), seed
    tried = {name: model.tried(*given) for name, model in models.items()}
    held = at_common_rows([one.held for one in tried.values()])
    found, _ = pooled({name: one.model for name, one in tried.items()}, held)
    assert isinstance(found, PooledModel)
    limit = PILOT_MARGIN * min(one.crps for one in found.members)
    return [
        one.name
        for one in found.members
        if one.weight > 0.0 or (models[one.name].gp is None and one.crps < limit)
    ]
