"""transformers' BertForPreTraining: its scores, from the weights that are read here."""

from __future__ import annotations

import numpy as np
import paddle
import torch

from sot_paddle.backbones.families import TEXT_BACKBONES
from sot_paddle.backbones.pretraining import PretrainingModel
from sot_paddle.config import EncoderConfig
from sot_paddle.convert.formats.source import open_source, read_as_paddle
from sot_paddle.heads.pretraining import PretrainingHeadConfig
from sot_torch_ref.backbones import text  # noqa: F401 (makes transformers importable)

SIZES = {
    **{"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 20, "max_position_embeddings": 16},
}


def test_the_scores_are_those_of_transformers(tmp_path) -> None:
    from transformers import BertConfig, BertForPreTraining

    torch.manual_seed(1)
    theirs = BertForPreTraining(BertConfig(**SIZES)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    arrays = read_as_paddle(open_source(tmp_path), "bert_base", pretraining_heads=True)
    ours = PretrainingModel(
        TEXT_BACKBONES["bert"], EncoderConfig(**SIZES), PretrainingHeadConfig(), name="bert_base"
    )
    state = ours.state_dict()
    assert set(state) <= set(arrays)
    for name, tensor in state.items():
        tensor.set_value(np.asarray(arrays[name]))
    ours.eval()
    rng = np.random.default_rng(0)
    ids, positions = rng.integers(0, 40, (3, 9)), np.array([[1, 4], [8, 2], [3, 3]])
    words, following = ours(
        *map(paddle.to_tensor, (ids, np.zeros_like(ids), np.ones_like(ids), positions))
    )
    with torch.no_grad():
        expected = theirs(torch.tensor(ids))
    every = expected.prediction_logits.numpy()[np.arange(3)[:, None], positions]
    assert np.abs(words.numpy() - every).max() < 1e-5 * np.abs(every).max()
    expected = expected.seq_relationship_logits.numpy()
    assert np.abs(following.numpy() - expected).max() < 1e-5 * np.abs(expected).max()
