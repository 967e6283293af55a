"""Laws of rows: scores and values are increasing, and inverse to each other, as far as they go."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sharpgp.models.laws import Either, Mixture, Normal, Table, averaged, joined

T = 7
GENERATOR = np.random.default_rng(0)
Z = torch.cat([torch.linspace(-8, 8, 41), torch.tensor([-500.0, -40.0, 40.0, 500.0])]).double()
Z = Z.sort().values.unsqueeze(-1)


def draw(*shape):
    return torch.from_numpy(GENERATOR.normal(size=shape))


def normal():
    return Normal(draw(T), 0.1 + draw(T).abs())


def shared():
    """As of a forest, with an atom at 1."""
    y = torch.tensor([-3.0, -1.0, 0.0, 1.0 - 1e-9, 1.0 + 1e-9, 2.5]).double()
    p = torch.tensor([0.001, 0.2, 0.3, 0.4, 0.9, 0.999]).double()
    z = torch.special.ndtri(p) + 0.05 * torch.arange(T).double().unsqueeze(-1)
    return Table(y, z, draw(T), torch.ones(T).double(), torch.ones(2, T).double(), 4e-9)


def quantiles():
    levels = torch.tensor([0.01, 0.3, 0.5, 0.7, 0.99]).double()
    return Table.of_quantiles(levels, draw(T, 5).sort(dim=1).values, 1.0)


def mixture():
    return Mixture(torch.tensor([0.2, 0.5, 0.3]).double(), [normal(), shared(), quantiles()])


def either():
    return Either(torch.arange(T) % 2, [normal(), mixture()])


def changed():
    return mixture().changed(draw(T), 0.5 + draw(T).abs(), 0.5 + draw(T).abs())


LAWS = {kind.__name__: kind for kind in (normal, shared, quantiles, mixture, either, changed)}


@pytest.fixture(params=LAWS)
def law(request):
    return LAWS[request.param]()


def test_scores_and_values_are_increasing_and_inverse(law):
    y = law.value(Z)
    assert y.shape == (len(Z), T)
    assert bool(torch.isfinite(y).all() and (y.diff(dim=0) >= -1e-12).all())
    z = law.score(y)
    # Within an atom many scores have one value, as far as numbers go.
    atom = (law.value(Z + 0.01) - y).abs() < 1e-7
    torch.testing.assert_close(z[~atom], Z.expand(-1, T)[~atom], rtol=1e-6, atol=1e-5)
    for k in range(0, len(Z), 7):
        torch.testing.assert_close(law.value(z[k : k + 1]), y[k : k + 1], rtol=1e-9, atol=1e-9)


def test_rows_are_apart(law):
    y, some = law.value(Z), torch.tensor([5, 0, 2])
    torch.testing.assert_close(law.take(some).value(Z), y[:, some])
    both = joined([law.take(torch.arange(3)), law.take(torch.arange(3, T))])
    torch.testing.assert_close(both.value(Z), y)
    torch.testing.assert_close(both.location, law.location)
    torch.testing.assert_close(both.spread, law.spread)


def test_a_mixture_is_inverted_in_few_evaluations():
    """Of members as different as those of a pool; bracketing by halves takes some fifty."""
    m, s = draw(3, T), 0.5 + draw(3, T).abs()
    law = Mixture(
        torch.tensor([0.2, 0.5, 0.3]).double(), [Normal(*of) for of in zip(m, s, strict=True)]
    )
    asked, ask = [], law.scores_at
    vars(law)["scores_at"] = lambda y, rows: asked.append(len(y)) or ask(y, rows)
    z = torch.linspace(-4, 4, 30).double().unsqueeze(-1)
    values = law.value(z)
    assert sum(asked) < 8 * values.numel()
    assert float((law.score(values) - z).abs().max()) < 1e-9


def test_a_mixture_has_the_mixture_of_the_probabilities():
    law = mixture()
    y = law.value(Z[5:-5])
    terms = zip(law.weights, law.laws, strict=True)
    expected = sum(w * torch.special.ndtr(one.score(y)) for w, one in terms)
    torch.testing.assert_close(torch.special.ndtr(law.score(y)), expected)


def test_far_away_a_mixture_ends_as_its_widest_member():
    narrow, wide = Normal(*torch.tensor([[0.0], [1.0]])), Normal(*torch.tensor([[3.0], [2.0]]))
    law = Mixture(torch.tensor([0.99, 0.01]).double(), [narrow, wide])
    y = torch.tensor([[-2000.0], [2000.0]]).double()
    assert float((law.score(y) / wide.score(y) - 1).abs().max()) < 1e-4


def test_values_of_a_mixture_have_derivatives():
    location = draw(2).requires_grad_()
    z = torch.tensor([[-9.0], [0.3], [2.0]]).double()

    def value(location):
        laws = [Normal(one.reshape(1), torch.ones(1).double()) for one in location]
        return Mixture(torch.tensor([0.3, 0.7]).double(), laws).value(z)[:, 0]

    found = torch.autograd.functional.jacobian(value, location)
    step = 1e-5 * torch.eye(2).double()
    with torch.no_grad():
        slow = [(value(location + one) - value(location - one)) / 2e-5 for one in step]
    torch.testing.assert_close(found, torch.stack(slow, 1), rtol=1e-4, atol=1e-6)


def test_averages():
    one, other = normal(), normal()
    mean = averaged([one, other])
    torch.testing.assert_close(mean.location, 0.5 * (one.location + other.location))
    square = 0.5 * (one.spread.square() + other.spread.square())
    torch.testing.assert_close(mean.spread.square(), square)
    one, other = shared(), shared()
    other = replace(other, z=other.z + 0.1)
    at = one.y.unsqueeze(-1).expand(-1, T)
    p = [torch.special.ndtr(law.score(at)) for law in (one, other, averaged([one, other]))]
    torch.testing.assert_close(p[2], 0.5 * (p[0] + p[1]))
    assert type(averaged([quantiles(), quantiles()])) is Mixture


def test_laws_of_different_kinds_join():
    laws = [normal(), mixture().take(torch.arange(0)), quantiles(), mixture()]
    y = draw(3 * T)
    parts = [laws[k].score(some) for k, some in zip((0, 2, 3), y.split(T), strict=True)]
    together = joined(laws)
    torch.testing.assert_close(together.score(y), torch.cat(parts))
    values = torch.cat([laws[k].value(Z) for k in (0, 2, 3)], 1)
    torch.testing.assert_close(together.value(Z), values)
