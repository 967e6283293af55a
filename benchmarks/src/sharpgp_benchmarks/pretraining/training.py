"""Training of the prior-fitted network for so many seconds, on tables that it sees once."""

import csv
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from sharpgp.models.prior_fitted import WEIGHTS, PriorFittedNetwork, Shape, standardised
from sharpgp_benchmarks.pretraining.tables import tables

#: Rows of tables and tokens of their rows (columns and three more), with how often each is drawn.
ROWS = {64: 5, 128: 12, 256: 25, 512: 33, 1024: 25}
WIDTHS = {4: 3, 5: 4, 6: 6, 8: 9, 9: 9, 11: 10, 12: 9, 14: 9, 16: 8, 20: 7, 24: 6, 32: 4, 48: 2}
#: Batches of one shape that are drawn at once.
TOGETHER = 4
#: Kept tables: rows, columns, and rows of the context.
KEPT = ((128, 3, 64), (256, 5, 128), (400, 8, 300), (1024, 13, 700), (400, 21, 300))
#: Steps of matrices and of the rest, shares of the time in which steps grow and shrink.
RATE, RATE_OF_REST, WARM_STEPS, COOLING = 0.006, 1.0e-3, 100, 0.5
#: What training goes on from.
CHECKPOINT = "checkpoint.safetensors"
# Z-scores of targets count up to here.
_FARTHEST = 12.0


def train(
    seconds: float,
    out: Path,
    *,
    device: str = "cuda",
    tokens: int = 2**19,
    shape: Shape | None = None,
    kept: Sequence[tuple[int, int, int]] = KEPT,
    every: float = 30.0,
) -> None:
    """Train for ``seconds`` in all, from a checkpoint or weights in ``out`` if there are any."""
    # cuDNN plans attention anew for every size of a context: longer than computing it.
    torch.backends.cuda.enable_cudnn_sdp(False)
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    network = PriorFittedNetwork(shape or Shape(), dtype).to(device)
    network.borders.copy_(borders(network.shape.n_bins, device))
    torch.manual_seed(1)
    unseen = [(*tables(64, rows, columns, device), n) for rows, columns, n in kept]
    optimiser = Optimiser(network)
    state = _go_on(out, network, optimiser)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        torch._dynamo.config.recompile_limit = 64
        for block in [*network.cells, *network.rows]:
            block.forward = torch.compile(block.forward, dynamic=True)
    torch.manual_seed(1000 + state["step"])
    source = batches(tokens, device, 1000 + state["step"])
    before, start = state["seconds"], time.perf_counter()
    told, since, running = start, 0, torch.zeros((), device=device)
    while state["seconds"] < seconds:
        X, y, n = next(source)
        left = 1.0 - state["seconds"] / seconds
        loss = loss_of(network, X, y, n)
        loss.backward()
        optimiser.step(min(1.0, (state["step"] + 1) / WARM_STEPS, left / COOLING + 0.01))
        running += loss.detach()
        since += 1
        state["step"] += 1
        state["tables"] += len(X)
        if device == "cuda" and since % 16 == 0:
            torch.cuda.synchronize()
        now = time.perf_counter()
        state["seconds"] = before + now - start
        if now - told > every or state["seconds"] >= seconds:
            losses = [_loss_in_parts(network, *one) for one in unseen]
            _tell(out, state, running.item() / since, losses)
            _save(out, network, optimiser, state)
            told, since = time.perf_counter(), 0
            running.zero_()


def batches(tokens: int, device: str, seed: int) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Tables ``X`` [B, N, d], ``y`` [B, N] and rows of the context, about ``tokens`` at a time."""
    draw = random.Random(seed)
    while True:
        (rows,) = draw.choices(list(ROWS), list(ROWS.values()))
        (width,) = draw.choices(list(WIDTHS), list(WIDTHS.values()))
        count = max(4, tokens // (rows * width))
        X, y = tables(count * TOGETHER, rows, width - 3, device)
        for some in torch.randperm(len(X), device=device).split(count):
            yield X[some], y[some], max(4, int(rows * (0.2 + 0.75 * draw.random())))


def loss_of(network: PriorFittedNetwork, X: Tensor, y: Tensor, n: int) -> Tensor:
    """Mean negative log density of the rows from ``n`` on."""
    cells, known, mean, scale = standardised(X, y[:, :n])
    columns = torch.randn(len(X), X.shape[2], 32, device=X.device)
    wanted = ((y[:, n:] - mean) / scale).clamp(-_FARTHEST, _FARTHEST)
    return -network.log_density(network(cells, known, columns), wanted).mean()


def _loss_in_parts(network: PriorFittedNetwork, X: Tensor, y: Tensor, n: int) -> float:
    with torch.no_grad(), torch.random.fork_rng([X.device] if X.is_cuda else []):
        torch.manual_seed(2)
        parts = zip(X.split(16), y.split(16), strict=True)
        return float(torch.stack([loss_of(network, *part, n) for part in parts]).mean())


def borders(n_bins: int, device: str) -> Tensor:
    """Ends [n_bins + 1] of bins: half by how z-scores of targets fall, half evenly."""
    scores = []
    for rows in (64, 256, 1024):
        _, y = tables(64, rows, 6, device)
        _, _, mean, scale = standardised(y[..., None], y[:, : rows // 2])
        scores.append(((y - mean) / scale).flatten())
    drawn = torch.cat(scores).clamp(-4.0, 4.0)
    both = torch.cat([drawn, torch.linspace(-4.0, 4.0, len(drawn), device=device)]).double()
    levels = torch.linspace(0.0, 1.0, n_bins + 1, device=device).double()
    # Apart, where many targets are the same.
    apart = 1e-4 * torch.arange(n_bins + 1, device=device)
    return (torch.quantile(both, levels) + apart).float()


class Optimiser:
    """Matrices by orthogonalised momentum, the rest by Adam.

    References
    ----------
    K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
    """

    def __init__(self, network: PriorFittedNetwork) -> None:
        groups: dict[tuple[int, ...], list[nn.Parameter]] = {}
        rest = []
        for name, p in network.named_parameters():
            if p.ndim == 2 and min(p.shape) >= 32 and "head." not in name:
                groups.setdefault(tuple(p.shape), []).append(p)
            else:
                rest.append(p)
        self.rest, self.of_rest = rest, torch.optim.AdamW(rest, betas=(0.9, 0.98), weight_decay=0.0)
        # Matrices of one shape at a time.
        self.groups = list(groups.values())
        self.momenta = [torch.zeros_like(torch.stack(list(group))) for group in self.groups]

    @torch.no_grad()
    def step(self, share: float) -> None:
        """One step of so much of the full size; forgets the gradients."""
        nn.utils.clip_grad_norm_(self.rest, 1.0)
        self.of_rest.param_groups[0]["lr"] = RATE_OF_REST * share
        self.of_rest.step()
        for group, momentum in zip(self.groups, self.momenta, strict=True):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            momentum.lerp_(gradient, 0.05)
            update = orthogonal(gradient.lerp(momentum, 0.95)).to(gradient)
            rows, columns = update.shape[-2:]
            size = RATE * share * math.sqrt(max(1.0, rows / columns))
            torch._foreach_mul_(tuple(group), 1.0 - 0.01 * RATE * share)
            torch._foreach_sub_(tuple(group), update.unbind(), alpha=size)
        for p in [*self.rest, *(p for group in self.groups for p in group)]:
            p.grad = None

    def tensors(self) -> dict[str, Tensor]:
        """All that steps depend on, by name; the tensors themselves."""
        found = {f"momenta.{k}": momentum for k, momentum in enumerate(self.momenta)}
        for k, p in enumerate(self.rest):
            of_p = self.of_rest.state[p]
            if not of_p:  # Adam makes them at its first step
                of_p["step"] = torch.zeros(())
                of_p["exp_avg"], of_p["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)
            found |= {f"rest.{k}.{name}": value for name, value in of_p.items()}
        return found


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices [..., r, c] with the same singular vectors, and singular values about 1.

    Five steps of a Newton-Schulz iteration.

    Examples
    --------
    >>> values = torch.linalg.svdvals(orthogonal(torch.randn(2, 8, 5)).float())
    >>> bool((values > 0.6).all() and (values < 1.3).all())
    True
    """
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


def _tell(out: Path, state: dict[str, Any], training: float, unseen: Sequence[float]) -> None:
    """A line of the curve, also on standard output."""
    names = [f"unseen_{rows}x{columns}" for rows, columns, _ in KEPT]
    line = {
        "seconds": round(state["seconds"], 1),
        "step": state["step"],
        "tables": state["tables"],
        "training": round(training, 4),
        "unseen": round(sum(unseen) / len(unseen), 4),
    }
    if len(unseen) == len(names):
        line |= {name: round(loss, 4) for name, loss in zip(names, unseen, strict=True)}
    new = not (out / "curve.csv").exists()
    with (out / "curve.csv").open("a", newline="") as file:
        writer = csv.DictWriter(file, list(line))
        if new:
            writer.writeheader()
        writer.writerow(line)
    shown = {key: value for key, value in line.items() if "x" not in key}
    sys.stdout.write(" ".join(f"{key} {value}" for key, value in shown.items()) + "\n")
    sys.stdout.flush()


def _save(
    out: Path, network: PriorFittedNetwork, optimiser: Optimiser, state: dict[str, Any]
) -> None:
    """Half-precision weights for the library, and all that training goes on from."""
    weights = network.state_dict()
    halves = {k: v if k == "borders" else v.half() for k, v in weights.items()}
    _write(halves, out / WEIGHTS.name, network.metadata)
    everything = {**weights, **optimiser.tensors()}
    _write(everything, out / CHECKPOINT, {name: repr(value) for name, value in state.items()})


def _write(tensors: dict[str, Tensor], path: Path, facts: dict[str, str]) -> None:
    """Whole, or not at all."""
    partial = path.with_suffix(".partial")
    save_file({k: v.contiguous().cpu() for k, v in tensors.items()}, partial, facts)
    partial.replace(path)


def _go_on(out: Path, network: PriorFittedNetwork, optimiser: Optimiser) -> dict[str, Any]:
    """Seconds, steps and tables of a checkpoint; from weights alone, training begins anew."""
    file, wanted = out / CHECKPOINT, {**network.state_dict(), **optimiser.tensors()}
    if not file.exists():
        file, wanted = out / WEIGHTS.name, network.state_dict()
    state = {"seconds": 0.0, "step": 0, "tables": 0}
    if file.exists():
        with safe_open(file, "pt") as stored, torch.no_grad():
            for name, kept in wanted.items():
                kept.copy_(stored.get_tensor(name))
            facts = stored.metadata()
        state |= {key: type(value)(facts[key]) for key, value in state.items() if key in facts}
    return state
