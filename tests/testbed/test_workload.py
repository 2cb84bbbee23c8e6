"""The schedule."""

from testbed.workload import Request, interleave, make_schedule


def test_the_schedule_depends_on_the_seed_alone_and_its_start_on_no_length():
    long, short = make_schedule(8, 3, 60.0, seed=1), make_schedule(4, 3, 60.0, seed=1)
    assert long[:4] == short
    assert make_schedule(4, 3, 60.0, seed=2) != short
    assert [request.context for request in long] == [0, 1, 2, 0, 1, 2, 0, 1]
    assert all(0 <= request.trace_offset_s < 60 for request in long)
    assert len({request.trace_offset_s for request in long}) == 8


def test_every_method_serves_every_request_once_and_takes_each_place_in_turn():
    requests = [Request(index, 0, float(index)) for index in range(3)]
    order = interleave(requests, ["a", "b", "c"])

    assert sorted((request.index, method) for request, method in order) == [
        (index, method) for index in range(3) for method in "abc"
    ]
    assert {order[start][1] for start in (0, 3, 6)} == {"a", "b", "c"}
