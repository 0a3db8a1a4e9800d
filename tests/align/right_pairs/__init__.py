"""Right ports drawn at random, at the sizes of users, and one wrong option for each.

`layer_rows` and `call_rows` are the table, `wiring` draws a pair from a seed, `by_hand` runs it
without the suite, `judging` with it, `planted` holds what float32 has to find, `running` does many.
"""
