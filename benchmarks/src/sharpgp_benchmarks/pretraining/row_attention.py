"""Attention among the tokens of a row, fused, on a GPU.

Rows have few tokens and there are many rows, so that matrices are small: one program holds those of
a row and a head, forwards and backwards.  PyTorch's attention is made for long sequences, and takes
ten times as long.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """``softmax(q k' / sqrt(D)) v`` of queries [S, heads, Q, D] and keys [S, heads, K, D]."""
    found: Tensor = _attended(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return found.transpose(1, 2)


@torch.library.custom_op("sharpgp::attended", mutates_args=())
def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    _launch(_forward, q, k, v, [out])
    return out


@_attended.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device)


@torch.library.custom_op("sharpgp::attended_backward", mutates_args=())
def _attended_backward(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    found = tuple(torch.empty(p.shape, dtype=p.dtype, device=p.device) for p in (q, k, v))
    _launch(_backward, q, k, v, [slopes.contiguous(), *found])
    return found  # type: ignore[return-value]


@_attended_backward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    found = tuple(torch.empty(p.shape, dtype=p.dtype, device=p.device) for p in (q, k, v))
    return found  # type: ignore[return-value]


def _keep(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs)


def _slopes(ctx, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
    found: tuple[Tensor, Tensor, Tensor] = _attended_backward(*ctx.saved_tensors, slopes)
    return found


_attended.register_autograd(_slopes, setup_context=_keep)


def _launch(kernel, q: Tensor, k: Tensor, v: Tensor, contiguous: list[Tensor]) -> None:  # type: ignore[no-untyped-def]
    """One program a row and a head; ``contiguous`` have the shapes of q, or of q, q, k and v."""
    S, Q, heads, D = q.shape
    K = k.shape[1]
    if any(part.stride(3) != 1 for part in (q, k, v)):
        q, k, v = (part.contiguous() for part in (q, k, v))
    strides = [part.stride(axis) for part in (q, k, v) for axis in (0, 1, 2)]
    sizes = [max(16, triton.next_power_of_2(many)) for many in (Q, K)]
    warps = max(1, min(8, sizes[1] // 16))
    kernel[(S * heads,)](
        q, k, v, *contiguous, *strides, Q, K, heads, D**-0.5, *sizes, D, num_warps=warps
    )  # fmt: skip


@triton.jit
def _loaded(at, row, head, many, strides, BLOCK: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    i, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, D)[None, :]
    at += row * strides[0] + i * strides[1] + head * strides[2] + c
    return tl.load(at, mask=i < many, other=0.0)


@triton.jit
def _stored(at, x, row, head, many, heads, BLOCK: tl.constexpr, D: tl.constexpr):  # type: ignore[no-untyped-def]
    i, c = tl.arange(0, BLOCK)[:, None], tl.arange(0, D)[None, :]
    at += ((row * many + i) * heads + head) * D + c
    tl.store(at, x.to(at.dtype.element_ty), mask=i < many)


@triton.jit
def _shares(q, k, K, scale, BLOCK_K: tl.constexpr):  # type: ignore[no-untyped-def]
    logits = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    logits = tl.where(tl.arange(0, BLOCK_K)[None, :] < K, logits, float("-inf"))
    shares = tl.exp(logits - tl.max(logits, 1)[:, None])
    return shares / tl.sum(shares, 1)[:, None]


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    q_at, k_at, v_at, out_at,
    q0, q1, q2, k0, k1, k2, v0, v1, v2, Q, K, heads, scale,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64) // heads, tl.program_id(0) % heads
    q = _loaded(q_at, row, head, Q, (q0, q1, q2), BLOCK_Q, D)
    k = _loaded(k_at, row, head, K, (k0, k1, k2), BLOCK_K, D)
    v = _loaded(v_at, row, head, K, (v0, v1, v2), BLOCK_K, D)
    shares = _shares(q, k, K, scale, BLOCK_K)
    out = tl.dot(shares.to(v.dtype), v, input_precision="ieee")
    _stored(out_at, out, row, head, Q, heads, BLOCK_Q, D)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    q_at, k_at, v_at, slopes_at, to_q_at, to_k_at, to_v_at,
    q0, q1, q2, k0, k1, k2, v0, v1, v2, Q, K, heads, scale,
    BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64) // heads, tl.program_id(0) % heads
    q = _loaded(q_at, row, head, Q, (q0, q1, q2), BLOCK_Q, D)
    k = _loaded(k_at, row, head, K, (k0, k1, k2), BLOCK_K, D)
    v = _loaded(v_at, row, head, K, (v0, v1, v2), BLOCK_K, D)
    slopes = _loaded(slopes_at, row, head, Q, (Q * heads * D, heads * D, D), BLOCK_Q, D)
    shares = _shares(q, k, K, scale, BLOCK_K)
    to_v = tl.dot(tl.trans(shares.to(v.dtype)), slopes, input_precision="ieee")
    to_shares = tl.dot(slopes, tl.trans(v), input_precision="ieee")
    to_logits = shares * (to_shares - tl.sum(to_shares * shares, 1)[:, None]) * scale
    to_logits = to_logits.to(q.dtype)
    to_q = tl.dot(to_logits, k, input_precision="ieee")
    to_k = tl.dot(tl.trans(to_logits), q, input_precision="ieee")
    _stored(to_q_at, to_q, row, head, Q, heads, BLOCK_Q, D)
    _stored(to_k_at, to_k, row, head, K, heads, BLOCK_K, D)
    _stored(to_v_at, to_v, row, head, K, heads, BLOCK_K, D)
