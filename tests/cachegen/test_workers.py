import os
import signal
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


def test_work_that_maps_work_comes_to_an_end(threads):
    sums = map_in_threads(lambda item: sum(map_in_threads(lambda inner: item + inner, range(5))), range(7))

    assert sums == [5 * item + 10 for item in range(7)]


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # that is what is tried
def test_a_forked_process_has_threads_of_its_own(threads):
    map_in_threads(lambda item: item, range(4))
    child = os.fork()
    if child == 0:
        # a child that hangs is ended by its alarm, and its status says so
        signal.alarm(10)
        os._exit(0 if map_in_threads(lambda item: item, range(4)) == [0, 1, 2, 3] else 1)

    assert os.waitpid(child, 0)[1] == 0
