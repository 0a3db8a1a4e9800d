"""Toy text, its instances and pairs, and the sizes of a model, to pre-train on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from sot_paddle.data.pretraining.instance_files import InstanceOptions, prepare_instances
from sot_paddle.data.pretraining.prepared import prepare_pairs
from sot_paddle.data.tokenizers import word_piece_tokenizer

WORDS = [f"word{index}" for index in range(40)]
SIZES = {
    **{"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 16, "max_position_embeddings": 32},
}


def write_texts(root: Path) -> Path:
    """A vocabulary, a text, its instances, its pairs, and the sizes of a model."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    (root / "words").mkdir()
    (root / "words" / "vocab.txt").write_text("\n".join(vocabulary), "utf-8")
    (root / "config.json").write_text(json.dumps({"model_type": "bert", **SIZES}), "utf-8")
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(120)]
    (root / "text.txt").write_text(
        "\n".join(text + "\n" * (at % 7 == 0) for at, text in enumerate(texts)), "utf-8"
    )
    tokenizer = word_piece_tokenizer(root / "words")
    special = {"first": 2, "separator": 3, "mask": 4, "vocab_size": tokenizer.vocab_size}
    options = InstanceOptions(**special, max_seq_length=20, max_predictions=4)
    files = [root / "text.txt"]
    prepare_instances(files, tokenizer, root / "instances", options, dupes=1)
    prepare_pairs(files, tokenizer, root / "pairs", vocab_size=tokenizer.vocab_size)
    return root
