"""Small problems run on one thread, and the user's setting comes back."""

import pytest
import torch

from sharpgp.gp import threads


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("n", "expected"), [(10, 1), (threads.MANY_POINTS, 2)])
def test_one_thread_below_a_size(two_threads, n, expected):
    with threads.threads_for(n):
        assert torch.get_num_threads() == expected
    assert torch.get_num_threads() == 2


def test_the_setting_survives_an_error(two_threads):
    with pytest.raises(ZeroDivisionError), threads.threads_for(10):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2
