"""A trained text folder rebuilds its model, its tokenizer and its padding without a flag."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sot_paddle.train.model_folder import find_text_folder
from sot_paddle.train.text_model import load_trained_text


@pytest.fixture
def trained(tiny, tmp_path):
    out = tmp_path / "out"
    tiny.done(out, "--max_steps", "4", "--do_lower_case")
    return out


def test_a_run_of_train_glue_needs_no_flag(tiny, trained) -> None:
    subject = load_trained_text(trained)
    assert find_text_folder(trained) == trained / "best"
    assert subject.labels == ("entailment", "not_entailment")
    assert (subject.num_texts, subject.padding) == (2, "max_length")
    assert (subject.tokenizer.max_length, subject.tokenizer.do_lower_case) == (20, True)
    assert subject.notes == ()
    assert not subject.model.training
    assert subject.model.head_config.q_dim == 5
    again = load_trained_text(trained / "best")
    for ours, theirs in zip(subject.model.parameters(), again.model.parameters(), strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_what_is_assumed_is_said_and_what_does_not_fit_is_refused(trained, tmp_path) -> None:
    (trained / "run.json").unlink()
    subject = load_trained_text(trained)
    assert subject.tokenizer.max_length == 24  # no more positions
    assert "no run.json" in subject.notes[0]
    with pytest.raises(ValueError, match="has positions for 24 tokens, asked for 30"):
        load_trained_text(trained, max_length=30)
    config = trained / "best" / "config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**content, "sot_model": "bert_huge"}), encoding="utf-8")
    with pytest.raises(ValueError, match="config.json: its size or checksum is not that of"):
        load_trained_text(trained)
    (trained / "best" / "manifest.json").unlink()
    with pytest.raises(ValueError, match="'sot_model' is 'bert_huge', which is no text model"):
        load_trained_text(trained)
    with pytest.raises(ValueError, match="holds no trained text model"):
        load_trained_text(tmp_path)
