"""Data loading of Paddle training scripts: sentences, and images.

Shapes: B samples, S tokens, H x W pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from PIL import Image

from sot_paddle.data.image_transforms import EvalTransform
from sot_paddle.data.tokenizers import word_piece_tokenizer

LENGTH, BATCH, SIZE = 14, 3, 12


def sentences(
    vocabulary: Path, first: Sequence[str], second: Sequence[str], labels: np.ndarray
) -> Iterator[dict[str, Any]]:
    """Batches of sentence pairs, padded to a fixed length."""
    tokenizer = word_piece_tokenizer(vocabulary, do_lower_case=True, max_length=LENGTH)
    for begin in range(0, len(first), BATCH):
        rows = range(begin, min(begin + BATCH, len(first)))
        batch = tokenizer.encode_batch([first[i] for i in rows], [second[i] for i in rows])
        batch["labels"] = labels[rows.start : rows.stop]
        yield {name: paddle.to_tensor(array) for name, array in batch.items()}


def single(vocabulary: Path, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Batches of sentences, each padded to its longest."""
    tokenizer = word_piece_tokenizer(vocabulary, do_lower_case=True, max_length=LENGTH)
    for begin in range(0, len(texts), BATCH):
        yield tokenizer.encode_batch(texts[begin : begin + BATCH], pad="longest")


def images(files: Sequence[Image.Image], labels: np.ndarray) -> Iterator[tuple[Any, Any]]:
    """Batches of preprocessed images and their labels."""
    transform = EvalTransform(img_size=SIZE, crop_pct=0.75)
    pixels = [transform(file) for file in files]
    for begin in range(0, len(files), BATCH):
        chunk = slice(begin, begin + BATCH)
        yield paddle.to_tensor(np.stack(pixels[chunk])), paddle.to_tensor(labels[chunk])
