"""Data: sentence pairs through a tokenizer, single sentences, images through a transform."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from sot_torch_ref.train.image_transforms import eval_transform
from tests.certificate.ports import port_loading
from tests.certificate.ports.port_loading import BATCH, LENGTH, SIZE
from tests.certificate.scene import Scene
from tests.certificate.scenes.scene_text import bert
from tests.certificate.scenes.scene_vision import resnet

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_TEXT = (
    "the a dog cat bird house tree river runs sleep ##s ##ing ##ed sing ##er old young red blue "
    "see ##n under over and , . ! ? who slowly never Paris The Dog Café cafe green ##ish"
)
WORDS = _TEXT.split()
SAMPLES = 8


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """Lives as long as the process, which removes it at its end."""
    return tempfile.TemporaryDirectory(prefix="certify_")


@functools.cache
def vocabulary() -> Path:
    """A WordPiece vocabulary file."""
    path = Path(_folder().name) / "vocab.txt"
    path.write_text("\n".join((*SPECIAL, *WORDS)) + "\n", encoding="utf-8")
    return path


def _texts(rng: np.random.Generator, count: int, least: int, most: int) -> list[str]:
    """Sentences with capitals, accents, punctuation, suffixes and unknown words."""
    whole = [word for word in WORDS if not word.startswith("##")] + ["Dogs", "singing", "xyz"]
    lengths = rng.integers(least, most, count)
    return [" ".join(rng.choice(whole, n)).capitalize() for n in lengths]


def _tokenizer() -> Any:
    from transformers import BertTokenizer

    return BertTokenizer(str(vocabulary()), do_lower_case=True)


def sentence_pairs(seed: int) -> Scene:
    """transformers' tokenizer and a plain loop against ours, pairs, fixed length."""
    rng = np.random.default_rng((seed, 15))
    first, second = _texts(rng, SAMPLES, 2, 6), _texts(rng, SAMPLES, 2, 9)
    labels = rng.integers(0, 3, SAMPLES)
    labels[:3] = 0, 1, 2
    given = first, second, labels
    return dataclasses.replace(
        bert(seed),
        data=(
            functools.partial(_pairs, *given),
            functools.partial(port_loading.sentences, vocabulary(), *given),
        ),
    )


def _pairs(
    first: Sequence[str], second: Sequence[str], labels: np.ndarray
) -> Iterator[dict[str, torch.Tensor]]:
    tokenizer = _tokenizer()
    for begin in range(0, len(first), BATCH):
        chunk = slice(begin, begin + BATCH)
        batch = tokenizer(
            first[chunk],
            second[chunk],
            max_length=LENGTH,
            truncation=True,
            padding="max_length",
            return_tensors="pt",
        )
        yield {**batch, "labels": torch.from_numpy(labels[chunk])}


def single_sentences(seed: int) -> Scene:
    """Single sentences, each batch padded to its longest."""
    texts = _texts(np.random.default_rng((seed, 16)), SAMPLES, 2, 10)
    return dataclasses.replace(
        bert(seed),
        data=(
            functools.partial(_single, texts),
            functools.partial(port_loading.single, vocabulary(), texts),
        ),
    )


def _single(texts: Sequence[str]) -> Iterator[Any]:
    tokenizer = _tokenizer()
    for begin in range(0, len(texts), BATCH):
        yield dict(
            tokenizer(
                texts[begin : begin + BATCH],
                max_length=LENGTH,
                truncation=True,
                padding="longest",
                return_tensors="pt",
            )
        )


def images(seed: int) -> Scene:
    """timm's evaluation transform against ours, on small images of several sizes."""
    rng = np.random.default_rng((seed, 17))
    sizes = rng.integers(18, 34, (SAMPLES, 2))
    files = [_picture(rng, *size) for size in sizes]
    labels = rng.integers(0, 5, SAMPLES)
    labels[:3] = 0, 4, 2
    return dataclasses.replace(
        resnet(seed),
        data=(
            functools.partial(_images, files, labels),
            functools.partial(port_loading.images, files, labels),
        ),
    )


def _picture(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """A smooth picture with some noise, not symmetric, of three different channels."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    waves = [np.sin(rng.uniform(2, 7) * x + rng.uniform(2, 7) * y + k) for k in range(3)]
    pixels = 127 + 90 * np.stack(waves, axis=-1) + rng.normal(0, 12, (height, width, 3))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _images(
    files: Sequence[Image.Image], labels: np.ndarray
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    transform = eval_transform(SIZE, 0.75)
    pixels = [transform(file) for file in files]
    for begin in range(0, len(files), BATCH):
        chunk = slice(begin, begin + BATCH)
        yield torch.from_numpy(np.stack(pixels[chunk])), torch.from_numpy(labels[chunk])
