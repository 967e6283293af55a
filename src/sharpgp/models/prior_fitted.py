r"""A network that was trained on generated tables, and predicts from rows as context.

It has seen 3.7 million tables that ``benchmarks/pretraining`` draws, and no real one.  A fit keeps
the rows; nothing is learned from them.  So a row is left out by leaving it out of the context.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional as F
from torch.special import ndtr

from sharpgp._stored import Array, agree, stored
from sharpgp.data.folds import Split
from sharpgp.gp.compute import threads_for
from sharpgp.models.laws import Law, Table
from sharpgp.models.model import OutOfFold
from sharpgp.models.registry import base
from sharpgp.models.without_gp import RefittedModel
from sharpgp.policy import PRIOR_COLUMNS, PRIOR_ROWS, drawn_rows
from sharpgp.rows import Inputs, Rows, rows_of_earlier

#: The name of the model in ``base=``, and of its weights beside this file.
PRIOR = "prior"
WEIGHTS = Path(__file__).with_name("prior_fitted.safetensors")
# Half-normal tails beyond the outermost bins, in deviations of the context's targets.
_TAIL = 2.5
# Numbers by which columns are told apart, and the seed that draws them.
_MARKS, _SEED = 32, 1
# Scores at which laws have a value.
_SCORES = torch.linspace(-3.25, 3.25, 131, dtype=torch.float64)
# Rows predicted at a time, and the most that CUDA attends to at a time.
_BLOCK, _MOST_AT_ONCE = 500, 65_535


# Keys and values of the context in each attention; and those of models that were asked before.
Memory = list[tuple[Tensor, Tensor]]
_MEMORIES: WeakKeyDictionary[Any, Memory] = WeakKeyDictionary()


@dataclass(frozen=True)
class Shape:
    """Sizes of a network: bins, width and blocks of cells, and of rows, width of a head."""

    n_bins: int = 640
    cell_width: int = 128
    cell_blocks: int = 4
    row_width: int = 256
    row_blocks: int = 5
    head_width: int = 32


@base(PRIOR, columns=PRIOR_COLUMNS)
@stored("PriorFitted", _rows=Rows, _y=Array("N"), earlier=rows_of_earlier)
class PriorFitted(RefittedModel):
    """The network's predictions from rows ``X`` [N, d] and targets ``y`` [N].

    Of more than 1,024 rows, as many drawn at random are the context.

    Examples
    --------
    >>> X = torch.linspace(0, 6, 60, dtype=torch.float64)[:, None]
    >>> law = PriorFitted(X, X[:, 0].sin()).law(X[:3] + 0.05)
    >>> bool((law.location - (X[:3, 0] + 0.05).sin()).abs().max() < 0.1)
    True
    """

    def _restored(self) -> None:
        agree("features of a context", self.n_features <= PRIOR_COLUMNS, True)

    @property
    def runs_in_threads(self) -> bool:
        """Every pass takes one thread."""
        return True

    def law(self, rows: Inputs) -> Law:
        """A table of quantiles, without a gradient."""
        with torch.no_grad(), threads_for(len(self._y)):
            memory, X = self._memory(), Rows.of(rows).X.detach()
            parts = [self._quantiles(block, memory) for block in X.split(_BLOCK)]
        y, mean = (torch.cat(several) for several in zip(*parts, strict=True))
        scale = float(self._y.std(correction=0)) or 1.0
        return replace(Table.of_quantiles(ndtr(_SCORES).to(y), y, scale), location=mean)

    def _memory(self) -> Memory:
        """What the network knows of the context."""
        memory = _MEMORIES.get(self)
        if not memory:
            memory, (X, y) = [], self._context
            cells, known, *_ = standardised(X[None], y[None])
            pretrained(str(X.device))(cells, known, marks(X.shape[1]).to(X)[None], memory)
            # A model that only scores what it was fitted without is asked once.
            _MEMORIES[self] = memory if self in _MEMORIES else []
        return memory

    def _quantiles(self, X: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Values [T, L] at the scores, and means [T]."""
        if not len(X):
            return X.new_empty(0, len(_SCORES)), X.new_empty(0)
        network, (context, y) = pretrained(str(X.device)), self._context
        cells, known, shift, scale = standardised(torch.cat([context, X])[None], y[None])
        columns = marks(X.shape[1]).to(X)[None]
        logits = network(cells[:, len(y) :], known[:, :0], columns, list(memory))
        mass = logits[0].double().softmax(-1)
        borders = network.borders.double()
        mean = mass @ (0.5 * (borders[1:] + borders[:-1]))
        cdf = F.pad(mass.cumsum(-1), (1, 0))
        levels = ndtr(_SCORES).to(cdf).expand(len(cdf), -1).contiguous()
        z = _interpolated(levels, cdf / cdf[:, -1:], borders.expand_as(cdf))
        return shift[0] + scale[0] * z, shift[0, 0] + scale[0, 0] * mean

    @property
    def _context(self) -> tuple[Tensor, Tensor]:
        """As many rows as the network was trained for."""
        rows = drawn_rows(len(self._y), PRIOR_ROWS).to(self._y.device)
        return self.X_train[rows], self._y[rows]

    def extended(self, rows: Inputs, y: Tensor) -> "PriorFitted":
        """With further rows to draw the context from."""
        return PriorFitted(Rows.join(self._rows, rows), torch.cat([self._y, y]))

    updated = extended

    def relearned(self, rows: Inputs, y: Tensor, labels: Tensor, seed: int) -> "PriorFitted":
        return PriorFitted(rows, y)

    def out_of_training(self, pairs: Sequence[Split], labels: Tensor, seed: int) -> OutOfFold:
        """The network was trained on none of the rows: it predicts from all of them."""
        return replace(self.out_of_fold(pairs, labels, seed), refits=[self])


def standardised(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cells [B, N, d, 3] and z-scores [B, n] for the network, mean and scale [B, 1] of ``y``.

    ``X`` [B, N, d] may be NaN where a value is missing, and ``y`` [B, n] are the targets of the
    first ``n`` rows, the context.  A cell is its z-score, logarithmic from 3 on, its rank among the
    context from -1.7 to 1.7, and whether it is missing.

    Examples
    --------
    >>> cells, z, mean, scale = standardised(
    ...     torch.tensor([[[1.0], [3.0], [9.0]]]), torch.ones(1, 2)
    ... )
    >>> cells[0, :2, 0].tolist(), z.tolist(), mean.item(), scale.item()
    ([[-1.0, -0.85, 0.0], [1.0, 0.85, 0.0]], [[0.0, 0.0]], 1.0, 1.0)
    """
    n = y.shape[1]
    missing = X.isnan()
    context, there = X[:, :n], ~missing[:, :n]
    count = there.sum(1, keepdim=True).clamp_min(1)
    mean = torch.where(there, context, 0.0).sum(1, keepdim=True) / count
    square = torch.where(there, context - mean, 0.0).square().sum(1, keepdim=True) / count
    scale = _positive(square.sqrt(), mean)
    z = torch.where(missing, 0.0, (X - mean) / scale).clamp(-100.0, 100.0)
    ordered = torch.where(there, z[:, :n], math.inf).transpose(1, 2).contiguous().sort(-1).values
    at = z.transpose(1, 2).contiguous()
    places = torch.searchsorted(ordered, at) + torch.searchsorted(ordered, at, right=True)
    rank = places.transpose(1, 2).minimum(2 * count) / count - 1.0
    z = z.sign() * torch.where(z.abs() < 3.0, z.abs(), 3.0 + 3.0 * (z.abs() / 3.0).log())
    rank = torch.where(missing, 0.0, 1.7 * rank)
    mean_y = y.mean(1, keepdim=True)
    scale_y = _positive((y - mean_y).square().mean(1, keepdim=True).sqrt(), mean_y)
    cells = torch.stack([z, rank, 2.0 * missing], dim=-1)
    return cells.float(), ((y - mean_y) / scale_y).float(), mean_y, scale_y


def marks(d: int) -> Tensor:
    """By what ``d`` columns are told apart, [d, 32]."""
    return torch.randn(d, _MARKS, generator=torch.Generator().manual_seed(_SEED))


@cache
def pretrained(device: str) -> "PriorFittedNetwork":
    """The network with its trained weights."""
    with safe_open(WEIGHTS, "pt") as file:
        shape = {name: int(value) for name, value in file.metadata().items()}
        weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
    network = PriorFittedNetwork(Shape(**shape))
    network.load_state_dict(weights)
    return network.eval().requires_grad_(False).to(device)


class PriorFittedNetwork(nn.Module):
    """From rows with targets and rows without to logits over bins of these.

    A row has a token for each column, one for its target and two without a meaning of their own.
    Blocks of cells attend along each row, and down each column to the context.  The last three
    tokens become one vector of the row, and blocks of rows attend to those of the context.

    Parameters
    ----------
    shape : Shape
    dtype : torch.dtype
        In which blocks compute.
    """

    borders: Tensor

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.shape, self.dtype = shape, dtype
        cell, row, head = shape.cell_width, shape.row_width, shape.head_width
        self.cell_in, self.cell_up = _Linear(3, 64), _Linear(64, cell)
        self.column = _Linear(_MARKS, cell)
        self.target_in, self.target_up = _Linear(2, 64), _Linear(64, cell)
        self.unknown = nn.Parameter(0.5 * torch.randn(cell))
        self.registers = nn.Parameter(0.5 * torch.randn(2, cell))
        blocks = [_Block(cell, head, along=True) for _ in range(shape.cell_blocks)]
        self.cells = nn.ModuleList(blocks)
        self.up, self.target_row = _Linear(3 * cell, row), _Linear(64, row)
        blocks = [_Block(row, head, along=False) for _ in range(shape.row_blocks)]
        self.rows = nn.ModuleList(blocks)
        self.head = _Linear(row, shape.n_bins)
        self.register_buffer("borders", torch.linspace(-4.0, 4.0, shape.n_bins + 1))

    @property
    def metadata(self) -> dict[str, str]:
        """What :func:`pretrained` needs beside the weights."""
        return {name: str(value) for name, value in asdict(self.shape).items()}

    def forward(
        self, cells: Tensor, y: Tensor, columns: Tensor, memory: Memory | None = None
    ) -> Tensor:
        """Logits [B, N - n, bins] from :func:`standardised`, and marks [B, d, 32] of columns.

        An empty ``memory`` is filled with the context; without rows of a context, it is consumed.
        """
        B, N, d, _ = cells.shape
        n = y.shape[1]
        tokens = self.cell_up(F.gelu(self.cell_in(cells.to(self.dtype))))
        tokens = tokens + self.column(columns.to(self.dtype))[:, None]
        known = torch.stack([y, y.sign() * y.abs().log1p()], -1).to(self.dtype)
        known = F.gelu(self.target_in(known))
        unknown = self.unknown.to(self.dtype).expand(B, N - n, -1)
        target = torch.cat([self.target_up(known), unknown], dim=1)[:, :, None]
        registers = self.registers.to(self.dtype).expand(B, N, 2, -1)
        tokens = torch.cat([tokens, target, registers], dim=2)
        seen = memory[0][0].shape[2] if memory and n == 0 else n
        logs = [torch.full((), math.log(many), device=cells.device) for many in (d + 3, seen)]
        for block in self.cells:
            tokens = block(tokens, n, logs, memory)
        rows = self.up(_norm(tokens[:, :, d:].reshape(B, N, -1)))
        rows = torch.cat([rows[:, :n] + self.target_row(known), rows[:, n:]], dim=1)[:, :, None]
        for block in self.rows:
            rows = block(rows, n, logs, memory)
        logits: Tensor = self.head(_norm(rows[:, n:, 0]))
        return logits

    def log_density(self, logits: Tensor, y: Tensor) -> Tensor:
        """Log density of targets ``y``, as z-scores: even in bins, half-normal at both ends."""
        at = torch.searchsorted(self.borders[1:-1].contiguous(), y.contiguous())
        log_mass = logits.float().log_softmax(-1).gather(-1, at[..., None])[..., 0]
        low, high = self.borders[1], self.borders[-2]
        beyond = torch.where(at == 0, low - y, y - high).clamp_min(0.0) / _TAIL
        half_normal = 0.5 * math.log(2.0 / math.pi) - math.log(_TAIL) - 0.5 * beyond.square()
        at_ends = (at == 0) | (at == self.shape.n_bins - 1)
        return log_mass + torch.where(at_ends, half_normal, -self.borders.diff()[at].log())


class _Linear(nn.Linear):
    """In the type of its input; with an offset where it reads numbers of a table."""

    def __init__(self, fan_in: int, fan_out: int) -> None:
        super().__init__(fan_in, fan_out, bias=fan_in <= 3)

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x.dtype)
        return F.linear(x, self.weight.to(x.dtype), bias)


class _Block(nn.Module):
    """Attention along rows where these have several tokens, down to the context, and an MLP."""

    def __init__(self, width: int, head_width: int, *, along: bool) -> None:
        super().__init__()
        self.across = _Attention(width, head_width) if along else None
        self.down = _Attention(width, head_width)
        self.mlp = _Mlp(width)

    def forward(self, x: Tensor, n: int, logs: Sequence[Tensor], memory: Memory | None) -> Tensor:
        """Tokens ``x`` [B, N, C, width]; the first ``n`` rows are the context.

        ``logs`` are those of how many tokens a row has, and of how many rows the context.
        """
        if self.across is not None:
            x = self.across(x, None, logs[0], None)
        x = self.down(x, n, logs[1], memory)
        return self.mlp(x.reshape(-1, x.shape[-1])).view(x.shape)


class _Attention(nn.Module):
    """Attention among the tokens of a row, or of each column to the first ``n`` rows."""

    def __init__(self, width: int, head_width: int) -> None:
        super().__init__()
        self.heads = _Heads(width, head_width)
        self.add = _Add(width)

    def forward(self, x: Tensor, n: int | None, log_keys: Tensor, memory: Memory | None) -> Tensor:
        B, N, C, width = x.shape
        flat = x.reshape(-1, width)
        kept = memory.pop(0) if memory and n == 0 else None
        parts = [p.view(B, N, C, *p.shape[1:]) for p in self.heads(flat, log_keys)]
        if n is None:
            q, k, v = (p.flatten(0, 1).transpose(1, 2) for p in parts)
            attend = _attended_pairwise if torch.compiler.is_compiling() else _attended
            seen = attend(q, k, v).transpose(1, 2)
        else:
            q, k, v = (p.permute(0, 2, 3, 1, 4).flatten(0, 1) for p in parts)
            k, v = (k[:, :, :n], v[:, :, :n]) if kept is None else kept
            if memory is not None and kept is None:
                memory.append((k, v))
            seen = _attended(q, k, v)
            seen = seen.view(B, C, -1, N, seen.shape[-1]).permute(0, 3, 1, 2, 4)
        added: Tensor = self.add(flat, seen.reshape(-1, width))
        return added.view(x.shape)


class _Heads(nn.Module):
    """Queries, keys and values [T, heads, width of a head] of tokens [T, width].

    Queries are longer by the logarithm of how many keys there are, as far as a head has learned it.
    """

    def __init__(self, width: int, head_width: int) -> None:
        super().__init__()
        self.split = (-1, 3, width // head_width, head_width)
        self.qkv = _Linear(width, 3 * width)
        self.sharpness = nn.Parameter(torch.ones(width // head_width))
        self.growth = nn.Parameter(torch.zeros(width // head_width))

    def forward(self, x: Tensor, log_keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(_norm(x)).view(self.split).unbind(1)
        gain = (self.sharpness + self.growth * log_keys).to(x.dtype)
        return _norm(q) * gain[:, None], _norm(k), v


class _Add(nn.Module):
    """What was attended to, added to the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out = _Linear(width, width)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor, seen: Tensor) -> Tensor:
        added: Tensor = x + self.out(seen)
        return added


class _Mlp(nn.Module):
    """A hidden layer of four times the width, added to the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.out = _Linear(width, 4 * width), _Linear(4 * width, width)
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = x + self.out(F.gelu(self.up(_norm(x))))
        return added


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Values of the keys that queries [S, heads, ., width] attend to, some sequences at a time."""
    several = zip(*(part.split(_MOST_AT_ONCE) for part in (q, k, v)), strict=True)
    return torch.cat([F.scaled_dot_product_attention(*some) for some in several])


def _attended_pairwise(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The same without matrix products: compiled, one pass over the few tokens of a row."""
    logits = (q[:, :, :, None] * k[:, :, None]).float().sum(-1) * q.shape[-1] ** -0.5
    return (logits.softmax(-1).to(v.dtype)[..., None] * v[:, :, None]).sum(3)


def _norm(x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],))


def _positive(scale: Tensor, mean: Tensor) -> Tensor:
    """1 where a column is constant but for rounding."""
    return torch.where(scale > 1e-12 * (1.0 + mean.abs()), scale, 1.0)


def _interpolated(at: Tensor, given: Tensor, values: Tensor) -> Tensor:
    """Values [T, L] at places ``at`` [T, L], linear between those [T, K] at ``given`` [T, K]."""
    given = given.contiguous()
    right = torch.searchsorted(given, at).clamp(1, given.shape[1] - 1)
    low, high = given.gather(1, right - 1), given.gather(1, right)
    share = ((at - low) / (high - low).clamp_min(1e-300)).clamp(0.0, 1.0)
    return torch.lerp(values.gather(1, right - 1), values.gather(1, right), share)
