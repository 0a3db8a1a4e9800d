"""Table: the heads of BERT's pre-training in transformers' names, and in this project's.

The decoder is tied to the word embeddings on both sides and has no row.
"""

from __future__ import annotations

from collections.abc import Mapping

ROWS: Mapping[str, tuple[str, bool]] = {
    "cls.predictions.transform.dense.weight": ("head.words.dense.weight", True),
    "cls.predictions.transform.dense.bias": ("head.words.dense.bias", False),
    "cls.predictions.transform.LayerNorm.weight": ("head.words.norm.weight", False),
    "cls.predictions.transform.LayerNorm.bias": ("head.words.norm.bias", False),
    "cls.predictions.transform.LayerNorm.gamma": ("head.words.norm.weight", False),
    "cls.predictions.transform.LayerNorm.beta": ("head.words.norm.bias", False),
    "cls.predictions.bias": ("head.words.bias", False),
    "bert.pooler.dense.weight": ("head.dense.weight", True),
    "bert.pooler.dense.bias": ("head.dense.bias", False),
    "cls.seq_relationship.weight": ("head.next_fc.weight", True),
    "cls.seq_relationship.bias": ("head.next_fc.bias", False),
}
"""Tensor of a checkpoint -> tensor here, and whether it is a linear weight (transposed)."""
