"""Regression tables drawn from a prior over functions, columns and noise, many at once, on a GPU.

A table is rows ``X`` [N, F] and targets ``y`` [N]. Its columns have marginals as real ones have
(skewed, bounded, discrete, binary, inflated at zero, correlated, clustered, repeated, missing), its
mean is a random function (Gaussian processes by random Fourier features, random networks, sums of
trees, polynomials, causal graphs, and sums and products of these), its noise may be heavy-tailed,
skewed, bimodal and change with x, and its target may be warped, rounded, counted or clipped.
No row of real data is in it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

Device = torch.device | str


def tables(n_tables: int, n_rows: int, n_columns: int, device: Device) -> tuple[Tensor, Tensor]:
    """``X`` [B, N, F], NaN where missing, and ``y`` [B, N], neither of them standardised."""
    latent = _latent(n_tables, n_rows, n_columns, device)
    X = with_marginals(latent)
    inputs = torch.where(chance(0.3, n_tables, device)[:, None, None], latent, standard(X, 1))
    mean = _mean(inputs)
    X, inputs, mean = _with_graphs(X, inputs, mean)
    return finished(X, inputs, mean)


def finished(X: Tensor, inputs: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Columns with gaps and repeated rows, and targets with noise and warps."""
    X, inputs, mean = _with_repeats(X, inputs, mean)
    y = standard(_warped(_noisy(inputs, standard(mean, 1))), 1)
    usable = torch.isfinite(y).all(1) & (y.std(1) > 0.5)
    y = torch.where(usable[:, None], y, torch.randn_like(y))
    X = torch.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0)
    return _with_missing(X), y


# ------------------------------------------------------------------ columns


def _latent(B: int, N: int, F: int, device: Device) -> Tensor:
    """Standard normal columns, correlated in half of the tables, clustered in a fifth."""
    z = torch.randn(B, N, F, device=device)
    strength = torch.rand(B, 1, 1, device=device) * 1.5 * chance(0.5, B, device)[:, None, None]
    rank = max(1, F // 3)
    loadings = torch.randn(B, rank, F, device=device) * strength / math.sqrt(rank)
    z = z + torch.randn(B, N, rank, device=device) @ loadings
    n_clusters = 6
    centres = torch.randn(B, n_clusters, F, device=device)
    centres = centres * (chance(0.2, B, device) * torch.rand(B, device=device) * 3)[:, None, None]
    which = (torch.rand(B, N, device=device).pow(1.5) * n_clusters).long()
    return standard(z + centres.gather(1, which[..., None].expand(B, N, F)), 1)


def with_marginals(z: Tensor) -> Tensor:
    """Each column by one of eight transformations of its normal values."""
    B, _, F = z.shape
    device = z.device
    kind = torch.multinomial(
        torch.tensor([0.30, 0.20, 0.10, 0.14, 0.05, 0.09, 0.05, 0.07], device=device), B * F, True
    ).view(B, F)
    tied = chance(0.15, B, device)
    kind = torch.where(tied[:, None], kind[:, :1], kind)[:, None]
    a = torch.rand(B, 1, F, device=device)
    uniform = torch.special.ndtr(z)
    levels = (2 + (a * 4.0).exp() * 0.6).floor()
    shape = 0.3 + 1.2 * a
    X = z
    X = torch.where(kind == 1, uniform, X)
    X = torch.where(kind == 2, (shape * z).exp(), X)
    X = torch.where(kind == 3, (uniform * levels).floor(), X)
    X = torch.where(kind == 4, z.sign() * z.abs().pow(0.3 + 2 * a), X)
    X = torch.where(kind == 5, (uniform < 0.15 + 0.7 * a).float(), X)
    X = torch.where(kind == 6, z * (0.7 * a * z.abs()).exp(), X)
    return torch.where(kind == 7, (z - a).clamp_min(0.0), X)


def _with_repeats(X: Tensor, inputs: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In a twentieth of the tables rows repeat, each with its own noise."""
    B, N, F = X.shape
    n_distinct = (N * (0.1 + 0.7 * torch.rand(B, 1, device=X.device))).long().clamp_min(2)
    again = (torch.rand(B, N, device=X.device) * n_distinct).long()
    rows = torch.arange(N, device=X.device).expand(B, N)
    rows = torch.where(chance(0.05, B, X.device)[:, None], again, rows)
    of_all = rows[..., None].expand(B, N, F)
    return X.gather(1, of_all), inputs.gather(1, of_all), mean.gather(1, rows)


def _with_missing(X: Tensor) -> Tensor:
    """A tenth of the tables has missing values, up to a third of a column."""
    B, _, F = X.shape
    share = torch.rand(B, 1, F, device=X.device) / 3 * chance(0.5, B, X.device)[:, None, None]
    share = share * chance(0.2, B, X.device)[:, None, None]
    return X.masked_fill(torch.rand_like(X) < share, math.nan)


# ---------------------------------------------------------------- functions


def _mean(inputs: Tensor) -> Tensor:
    """A random function of each table, [B, N]: one, a sum or a product of two."""
    B = len(inputs)
    device = inputs.device
    first = standard(_of_any_family(inputs), 1)
    second = standard(_of_any_family(inputs), 1)
    weight = torch.rand(B, 1, device=device)
    how = torch.rand(B, 1, device=device)
    mean = torch.where(how < 0.28, first + weight * second, first)
    return torch.where(how > 0.88, first * (second + 2 * weight), mean)


def _of_any_family(inputs: Tensor) -> Tensor:
    """Random functions [B, N], each table's of a family drawn for it."""
    B, N, _ = inputs.shape
    families = (_fourier, _fourier, _fourier, _network, _network, _trees, _trees, _polynomial)
    order = torch.randperm(B, device=inputs.device)
    chosen = torch.multinomial(torch.ones(len(families)), B, True)
    counts = torch.bincount(chosen, minlength=len(families)).tolist()
    out = torch.zeros(B, N, device=inputs.device)
    start = 0
    for family, count in zip(families, counts, strict=True):
        if count:
            some = order[start : start + count]
            out[some] = family(inputs[some])
            start += count
    return out


def _relevance(B: int, F: int, device: Device) -> Tensor:
    """How much each column matters, [B, F]: zero for a share of them, at least one is not."""
    kept = torch.rand(B, F, device=device) >= torch.rand(B, 1, device=device).pow(1.5) * 0.9
    kept[torch.arange(B, device=device), torch.randint(F, (B,), device=device)] = True
    spread = torch.rand(B, 1, device=device) * 1.2
    return kept * (spread * torch.randn(B, F, device=device)).exp()


def _fourier(inputs: Tensor, n_waves: int = 384) -> Tensor:
    """Draws of stationary Gaussian processes: RBF, Matérn and L1 kernels, additive ones, sums."""
    B, _, F = inputs.shape
    device = inputs.device
    waves = torch.randn(B, n_waves, F, device=device)
    kind = torch.rand(B, 1, 1, device=device)
    # a multivariate t with 2 nu degrees of freedom is the spectral law of Matérn's kernel
    half_nu2 = torch.tensor([1.0, 3.0, 5.0], device=device)[torch.randint(3, (B,), device=device)]
    gammas = torch._standard_gamma((half_nu2 / 2)[:, None, None].expand(B, n_waves, 1).contiguous())
    matern = waves * (half_nu2[:, None, None] / (2 * gammas).clamp_min(1e-3)).sqrt()
    cauchy = (math.pi * (torch.rand_like(waves) - 0.5)).tan().clamp(-50, 50)
    waves = torch.where(kind > 0.4, torch.where(kind > 0.8, cauchy, matern), waves)
    relevance = _relevance(B, F, device)
    # additive: a wave sees some columns only
    alone = torch.rand(B, 1, 1, device=device)
    seen = torch.rand(B, n_waves, F, device=device)
    smallest = seen.topk(min(2, F), 2, largest=False).values
    threshold = torch.where(alone < 0.15, smallest[..., :1], smallest[..., -1:])
    in_wave = (seen <= threshold) | (alone > 0.3)
    active = torch.where(
        alone < 0.3, torch.full_like(alone, 1.5), (relevance > 0).sum(1)[:, None, None].float()
    )
    length = torch.exp(torch.rand(B, 1, 1, device=device) * 2.7 - 0.4) * active.sqrt()
    rough = 0.05 + 0.4 * torch.rand(B, 1, 1, device=device)
    is_rough = (torch.arange(n_waves, device=device) % 2 == 1)[None, :, None]
    is_sum = chance(0.3, B, device)[:, None, None]
    length = torch.where(is_rough & is_sum, length * rough, length)
    waves = waves * in_wave * relevance[:, None] / length
    amplitude = torch.randn(B, n_waves, device=device)
    amplitude = torch.where(
        (is_rough & is_sum)[..., 0], amplitude * torch.rand(B, 1, device=device), amplitude
    )
    phase = 2 * math.pi * torch.rand(B, 1, n_waves, device=device)
    values = (inputs @ waves.transpose(1, 2) + phase).cos()
    return (values @ amplitude[..., None])[..., 0]


def _network(inputs: Tensor, width: int = 48) -> Tensor:
    """Random networks of one to three hidden layers, with units of several kinds."""
    B, _, F = inputs.shape
    device = inputs.device
    hidden = inputs * _relevance(B, F, device)[:, None]
    for _ in range(int(torch.randint(1, 4, ()))):
        gain = torch.exp(torch.rand(B, 1, 1, device=device) * 1.5 - 0.5)
        fan_in = hidden.shape[-1]
        weights = torch.randn(B, fan_in, width, device=device) * gain / math.sqrt(fan_in)
        hidden = _units(hidden @ weights + torch.randn(B, 1, width, device=device))
    return (hidden @ torch.randn(B, hidden.shape[-1], 1, device=device))[..., 0]


def _units(values: Tensor) -> Tensor:
    """Activations, one kind for each quarter of the units."""
    kinds = (
        torch.tanh,
        torch.relu,
        torch.sin,
        torch.abs,
        lambda v: (-(v**2)).exp(),
        lambda v: (v > 0).float(),
        lambda v: v,
        torch.nn.functional.gelu,
    )
    parts = values.chunk(4, dim=-1)
    draws = torch.randint(len(kinds), (len(parts),)).tolist()
    return torch.cat([kinds[i](part) for i, part in zip(draws, parts, strict=True)], dim=-1)


def _trees(inputs: Tensor) -> Tensor:
    """Sums of one to thirty random trees; splits at values of rows."""
    B, N, F = inputs.shape
    device = inputs.device
    n_trees = int(2 ** (torch.rand(()) * 5))
    depth = int(torch.randint(2, 7, ()))
    n_nodes = 2**depth - 1
    relevance = _relevance(B, F, device)
    columns = torch.multinomial(relevance, n_trees * n_nodes, True)
    rows = torch.randint(N, (B, n_trees * n_nodes), device=device)
    flat = inputs.reshape(B, N * F)
    thresholds = flat.gather(1, rows * F + columns)
    offset = (torch.arange(n_trees, device=device) * n_nodes)[None, :, None]
    node = torch.zeros(B, n_trees, N, dtype=torch.long, device=device)
    at_row = (torch.arange(N, device=device) * F)[None, None]
    for _ in range(depth):
        index = (offset + node).reshape(B, -1)
        column = columns.gather(1, index).view(B, n_trees, N)
        value = flat.gather(1, (at_row + column).view(B, -1))
        node = 2 * node + 1 + (value > thresholds.gather(1, index)).view(B, n_trees, N).long()
    leaves = torch.randn(B, n_trees * 2**depth, device=device)
    leaf = (torch.arange(n_trees, device=device) * 2**depth)[None, :, None] + node - n_nodes
    return leaves.gather(1, leaf.reshape(B, -1)).view(B, n_trees, N).sum(1)


def _polynomial(inputs: Tensor) -> Tensor:
    """A linear function, with products and hinges of columns in most tables."""
    B, N, F = inputs.shape
    device = inputs.device
    relevance = _relevance(B, F, device)
    linear = (inputs @ (relevance * torch.randn(B, F, device=device))[..., None])[..., 0]
    n_terms = 6
    chosen = torch.multinomial(relevance, 2 * n_terms, True)
    factors = inputs.gather(2, chosen[:, None].expand(B, N, 2 * n_terms))
    hinged = (factors - torch.randn(B, 1, 2 * n_terms, device=device)).relu()
    factors = torch.where(chance(0.3, B * 2 * n_terms, device).view(B, 1, -1), hinged, factors)
    products = factors[..., :n_terms] * factors[..., n_terms:]
    coefficients = torch.randn(B, n_terms, 1, device=device) * chance(0.6, B, device)[:, None, None]
    return (
        standard(linear, 1)
        + torch.rand(B, 1, device=device) * 1.5 * (products @ coefficients)[..., 0]
    )


def _with_graphs(X: Tensor, inputs: Tensor, mean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A sixth of the tables comes from causal graphs: columns and target are nodes of one."""
    B, N, F = X.shape
    device = X.device
    some = torch.nonzero(torch.rand(B) < 1 / 6)[:, 0].to(device)
    count = len(some)
    if not count:
        return X, inputs, mean
    width = max(8, min(2 * F, 64) // 4 * 4)
    nodes = [torch.randn(count, N, width, device=device)]
    for _ in range(3):
        parents = nodes[-1]
        kept = torch.rand(count, width, width, device=device) < 0.4
        weights = torch.randn(count, width, width, device=device) * kept / math.sqrt(0.4 * width)
        gain = torch.exp(torch.rand(count, 1, 1, device=device) * 1.5 - 0.4)
        noise = torch.exp(torch.randn(count, 1, width, device=device) - 2.0)
        new = _units(parents @ weights * gain + 0.5 * torch.randn(count, 1, width, device=device))
        nodes.append(standard(new, 1) + noise * torch.randn(count, N, width, device=device))
    everything = torch.cat(nodes, dim=2)
    total = everything.shape[2]
    # the columns come from all layers, the target from the last two
    order = torch.rand(count, total, device=device)
    target = torch.randint(2 * width, total, (count, 1), device=device)
    order.scatter_(1, target, 2.0)
    columns = order.argsort(1)[:, :F]
    if columns.shape[1] < F:
        columns = torch.cat([columns, columns[:, : F - columns.shape[1]]], 1)
    chosen = standard(everything.gather(2, columns[:, None].expand(count, N, F)), 1)
    X, inputs, mean = X.clone(), inputs.clone(), mean.clone()
    X[some] = with_marginals(chosen)
    inputs[some] = chosen
    mean[some] = everything.gather(2, target[:, None].expand(count, N, 1))[..., 0]
    return X, inputs, mean


# ------------------------------------------------------- noise and targets


def _noisy(inputs: Tensor, mean: Tensor) -> Tensor:
    """``mean`` with noise: of any size, normal or not, the same everywhere or not."""
    B, N = mean.shape
    device = mean.device
    size = torch.exp(torch.rand(B, 1, device=device) * 4.3 - 3.9)
    size = torch.where(chance(0.15, B, device)[:, None], 0.02 * size, size)
    changing = standard(_of_any_family(inputs), 1).clamp(-2.5, 2.5)
    amount = torch.rand(B, 1, device=device) * 1.2 * chance(0.4, B, device)[:, None]
    normal = torch.randn(B, N, device=device)
    freedom = (2.5 + 8 * torch.rand(B, 1, device=device)).expand(B, N).contiguous()
    heavy = normal * (freedom / (2 * torch._standard_gamma(freedom / 2))).sqrt()
    shape = (0.5 + 5 * torch.rand(B, 1, device=device)).expand(B, N).contiguous()
    skewed = (torch._standard_gamma(shape) - shape) / shape.sqrt()
    turning = torch.where(chance(0.4, B, device)[:, None], changing.sign(), torch.ones_like(mean))
    skewed = skewed * turning * (2.0 * chance(0.5, B, device)[:, None] - 1)
    modes = (2.0 * (torch.rand(B, N, device=device) < 0.5) - 1) + 0.3 * normal
    kind = torch.rand(B, 1, device=device)
    noise = torch.where(kind < 0.25, heavy, normal)
    noise = torch.where((kind > 0.25) & (kind < 0.45), skewed, noise)
    noise = torch.where((kind > 0.45) & (kind < 0.5), modes, noise)
    return mean + size * (amount * changing).exp() * noise


def _warped(y: Tensor) -> Tensor:
    """Targets as they are, or skewed, bounded, clipped, rounded or counted."""
    B, _ = y.shape
    device = y.device
    kind = torch.rand(B, 1, device=device)
    a = torch.rand(B, 1, device=device)
    y = y.clamp(-20, 20)
    power = y.sign() * y.abs().pow(0.5 + 1.5 * a)
    lower = torch.quantile(y, a[:1, 0] * 0.6, dim=1).T
    upper = torch.quantile(y, 1 - a[-1:, 0] * 0.4, dim=1).T
    levels = (2 + (a * 3.5).exp()).floor()
    counts = torch.poisson((torch.exp(0.2 + a + (0.3 + 0.7 * a) * y.clamp(-4, 4))).clamp_max(1e4))
    out = torch.where(kind < 0.11, ((0.2 + 0.9 * a) * y.clamp(-6, 6)).exp(), y)
    out = torch.where((kind > 0.11) & (kind < 0.16), power, out)
    out = torch.where((kind > 0.16) & (kind < 0.22), torch.sigmoid((0.5 + 2 * a) * y), out)
    out = torch.where((kind > 0.22) & (kind < 0.26), torch.maximum(y, lower), out)
    out = torch.where((kind > 0.26) & (kind < 0.29), torch.minimum(y, upper), out)
    out = torch.where((kind > 0.29) & (kind < 0.35), (y * levels / 4).round(), out)
    return torch.where((kind > 0.35) & (kind < 0.40), counts, out)


# ------------------------------------------------------------------- helpers


def chance(share: float, count: int, device: Device) -> Tensor:
    """Booleans [count], each true with probability ``share``."""
    return torch.rand(count, device=device) < share


def standard(values: Tensor, dim: int) -> Tensor:
    """Zero mean and unit variance along ``dim``; zero where all are equal."""
    centred = values - values.mean(dim, keepdim=True)
    variance = centred.square().sum(dim, keepdim=True) / max(1, values.shape[dim] - 1)
    return centred / variance.sqrt().clamp_min(1e-6)
