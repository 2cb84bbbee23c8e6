"""What a store is asked for at once: much over a fast link, little over a slow one."""

from cachegen.stores.piece_size import PieceSize

MOST = 8 << 20


def sizes(bytes_per_s, rtt_s, count=12):
    """Sizes of the pieces that a link of this rate and round trip gets."""
    pace, asked = PieceSize(MOST), []
    for _ in range(count):
        asked.append(pace.num_bytes)
        pace.note(rtt_s + pace.num_bytes / bytes_per_s)
    return asked


def test_few_round_trips_take_a_large_object_over_a_fast_link_however_long():
    for rtt_s in (0.0001, 0.05, 0.4):
        assert sizes(1.25e9, rtt_s)[:6] == [1 << 16, 1 << 18, 1 << 20, 1 << 22, MOST, MOST]


def test_no_piece_keeps_its_reader_waiting_for_long():
    for mbps in (1, 2, 5, 10, 20, 50, 100, 1000):
        for rtt_s in (0.001, 0.05):
            bytes_per_s = mbps * 125_000
            assert max(sizes(bytes_per_s, rtt_s)) / bytes_per_s <= 1.1


def test_a_link_that_becomes_slow_gets_small_pieces():
    pace = PieceSize(MOST)
    for _ in range(5):
        pace.note(0.01)
    for _ in range(4):
        pace.note(5.0)

    assert pace.num_bytes == 1 << 16
