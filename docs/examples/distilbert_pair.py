"""The pair of align_your_own.md: python -m align spec docs/examples/distilbert_pair.py."""

import numpy as np

NAME = "distilbert"
OPTIMIZER = "adamw"
STEPS = 3
WEIGHTS = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.LayerNorm": "norm",
    "transformer.layer.{}": "layers.{}",
    "transformer.layer.{}.attention.q_lin": "layers.{}.attention.query",
    "transformer.layer.{}.attention.k_lin": "layers.{}.attention.key",
    "transformer.layer.{}.attention.v_lin": "layers.{}.attention.value",
    "transformer.layer.{}.attention.out_lin": "layers.{}.attention.out",
    "transformer.layer.{}.sa_layer_norm": "layers.{}.norm1",
    "transformer.layer.{}.ffn.lin1": "layers.{}.lin1",
    "transformer.layer.{}.ffn.lin2": "layers.{}.lin2",
    "transformer.layer.{}.output_layer_norm": "layers.{}.norm2",
}


def torch_module():
    """DistilBertModel of transformers with a small random configuration."""
    import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU build of torch)
    from transformers import DistilBertConfig, DistilBertModel

    sizes = {"vocab_size": 50, "max_position_embeddings": 16, "dim": 24, "n_heads": 3}
    return DistilBertModel(DistilBertConfig(**sizes, hidden_dim=40, n_layers=2))


def paddle_layer():
    """Our port."""
    from distilbert_paddle import DistilBert

    return DistilBert()


def inputs():
    """Two padded sentences of token numbers."""
    rng = np.random.default_rng(0)
    mask = (np.arange(7)[None] < np.array([[7], [4]])).astype("int64")
    return {"input_ids": rng.integers(1, 50, (2, 7)) * mask, "attention_mask": mask}
