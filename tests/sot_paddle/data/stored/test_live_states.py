"""Hidden states of a tiny model: layers by hand, extraction into files. L 3, T 6, F 12."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from sot_paddle.data.errors import DataError
from sot_paddle.data.stored.file_layout import stored_split
from sot_paddle.data.stored.live_states import LiveStates, extract, hidden_states
from sot_paddle.data.stored.state_files import StateReader
from sot_paddle.data.token_features import TokenFeatures, pad_rows

FEATURES = TokenFeatures.from_rows([[2, 7, 8, 3], [2, 9, 3], [2, 5, 6, 7, 8, 3]], [4, 3, 3])
LABELS = np.array([1, 0, 1])
WNLI = stored_split("WNLI", "dev")


def live(model, **origin: str) -> LiveStates:
    def batch(positions):
        return pad_rows(FEATURES, positions, max_length=6)

    return LiveStates(model, batch, 3, [LABELS], (3, 6, 12), origin)


def test_the_embedding_output_comes_first_then_every_layer(tiny_bert) -> None:
    model = tiny_bert("bert_base")
    inputs = pad_rows(FEATURES, range(3), max_length=6)
    found = hidden_states(model, inputs)
    assert model.training
    assert found.shape == [3, 3, 6, 12]
    assert found.stop_gradient
    model.eval()
    tensors = {name: paddle.to_tensor(value) for name, value in inputs.items()}
    embedded = model.bert.embeddings(
        input_ids=tensors["input_ids"], token_type_ids=tensors["token_type_ids"]
    )
    np.testing.assert_array_equal(found[:, 0].numpy(), embedded.numpy())
    last = model.features(**tensors)
    np.testing.assert_array_equal(found[:, -1, 0].numpy(), last.cls.numpy())
    np.testing.assert_array_equal(found[:, -1, 1:].numpy(), last.words.numpy())


def test_dropout_is_off_also_in_training(tiny_bert) -> None:
    model = tiny_bert("bert_base", hidden_dropout_prob=0.5)
    inputs = pad_rows(FEATURES, range(3), max_length=6)
    first, again = (hidden_states(model, inputs).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)


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
