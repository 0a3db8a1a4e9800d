"""Hidden states of a tiny model, and extraction into files. L 3, T 6, F 12.

Their values, in either mode: tests/parity.
"""

from __future__ import annotations

import numpy as np
import pytest

from sot_paddle.data.batches import TokenFeatures, pad_rows
from sot_paddle.data.errors import DataError
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.live_states import LiveStates, extract, hidden_states
from sot_paddle.data.stored.state_files import StateReader

FEATURES = TokenFeatures.from_rows([[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 3]], [4, 3, 3])
LABELS = np.array([1, 0, 1])
WNLI = stored_split("WNLI", "dev")


def live(model, **origin: str) -> LiveStates:
    def batch(positions):
        return pad_rows(FEATURES, positions, max_length=6)

    return LiveStates(model, batch, 3, [LABELS], (3, 6, 12), origin)


def test_no_gradient_flows_through_the_states(tiny_bert) -> None:
    found = hidden_states(tiny_bert("bert_base"), pad_rows(FEATURES, range(3), max_length=6))
    assert found.shape == [3, 3, 6, 12]
    assert found.stop_gradient


def test_extracted_rows_are_the_live_ones_whatever_the_batches(tiny_bert, tmp_path) -> None:
    model = tiny_bert("bert_base")
    source, seen = live(model), []
    extract(source, tmp_path, WNLI, batch_size=2, report=lambda *now: seen.append(now))
    assert seen == [(2, 3), (3, 3)]
    reader = StateReader(tmp_path, WNLI)
    assert (len(reader), reader.of_row) == (3, source.of_row)
    np.testing.assert_array_equal(reader.labels[0], LABELS)
    for rows in ((0, 1), (2,)):
        stored, now = reader.states(rows), source.states(rows)
        assert stored.tobytes() == now.tobytes()
    reader.close()
    assert extract(source, tmp_path, WNLI) == 3


def test_a_run_that_stopped_is_continued_not_repeated(tiny_bert, tmp_path) -> None:
    source = live(tiny_bert("bert_base"))
    make, asked = source.states, []

    def stop(positions):
        asked.append(list(positions))
        if 1 in positions:
            raise KeyboardInterrupt
        return make(positions)

    source.states = stop
    with pytest.raises(KeyboardInterrupt):
        extract(source, tmp_path, WNLI, batch_size=1)
    source.states = lambda positions: (asked.append(list(positions)), make(positions))[1]
    assert extract(source, tmp_path, WNLI, batch_size=1) == 1
    assert asked == [[0], [1], [1], [2]]
    with pytest.raises(DataError, match="begun with"):
        extract(live(tiny_bert("bert_base"), encoder="another"), tmp_path, WNLI)
