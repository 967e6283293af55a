"""Where to put the inducing inputs of a sparse GP."""

import warnings

import numpy as np
import torch
from torch import Tensor

#: Most rows per inducing input that the clustering uses.
_ROWS_PER_CENTRE = 100


def cluster_centres(X: Tensor, n: int, relevance: Tensor, seed: int = 0) -> Tensor:
    r"""``n`` inducing inputs [n, d]: centres of k-means clusters of the rows of ``X`` [N, d].

    Distances are the kernel's: features are multiplied by their ``relevance`` [d], the inverse
    lengthscale, so that no centres are wasted on irrelevant features. With as many centres as
    distinct rows, the rows themselves are returned.

    Examples
    --------
    >>> X = torch.linspace(0, 1, 100, dtype=torch.float64)[:, None]
    >>> cluster_centres(X, 4, torch.ones(1, dtype=torch.float64)).shape
    torch.Size([4, 1])
    """
    # Slow to import, and only sparse GPs need it.
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    points = X.detach().cpu().numpy()
    rng = np.random.default_rng(seed)
    if len(points) > n * _ROWS_PER_CENTRE:
        points = points[rng.choice(len(points), n * _ROWS_PER_CENTRE, replace=False)]
    distinct = np.unique(points, axis=0)
    if len(distinct) <= n:
        return torch.from_numpy(distinct).to(X)
    weight = relevance.detach().cpu().numpy()
    weight = np.maximum(weight, 1e-3 * weight.max())
    # Small batches of a few thousand rows find centres as good as whole passes do, much faster.
    clusters = MiniBatchKMeans(n, batch_size=4096, n_init=1, max_iter=20, random_state=seed)
    # The stopping rule sums over points, and sums depend on the number of threads.
    with warnings.catch_warnings(), threadpool_limits(1, user_api="openmp"):
        warnings.simplefilter("ignore")  # about threads, on some systems
        clusters.fit(distinct * weight)
    return torch.from_numpy(clusters.cluster_centers_ / weight).to(X)
