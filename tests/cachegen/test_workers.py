import threading

import pytest
import torch

from cachegen.kernels.workers import map_in_threads


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_results_stand_in_the_order_of_the_items(threads, count):
    assert map_in_threads(lambda item: item * item, range(count)) == [item * item for item in range(count)]


def test_no_more_items_are_in_work_than_allowed(threads):
    lock = threading.Lock()
    at_work, most = 0, 0

    def work(_item):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
        threading.Event().wait(0.005)
        with lock:
            at_work -= 1

    map_in_threads(work, range(8), at_once=2)
    assert most == min(2, threads)


def test_an_error_is_raised_when_no_item_is_in_work_any_more(threads):
    done = []

    def work(item):
        if item == 0:
            raise KeyError(item)
        threading.Event().wait(0.01)
        done.append(item)

    with pytest.raises(KeyError):
        map_in_threads(work, range(threads))
    assert len(done) == threads - 1


def test_torch_keeps_its_threads_for_everyone_else(threads):
    map_in_threads(lambda item: item, range(4))

    assert torch.get_num_threads() == threads
