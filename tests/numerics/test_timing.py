"""Which computation is the fastest."""

import time

from convert_tf.numerics.timing import shortest_seconds


def test_the_shortest_of_each_is_taken_in_turns_and_the_first_not_counted():
    order = []

    def run(name, pauses):
        def once():
            order.append(name)
            time.sleep(next(pauses))

        return once

    slow, quick = shortest_seconds(
        [run("slow", iter((0, 0.1, 0.05, 0.1))), run("quick", iter((0.1, 0.01, 0.02, 0.02)))]
    )
    assert slow >= 0.05
    assert 0.01 <= quick < slow
    assert order == ["slow", "quick"] * 4
