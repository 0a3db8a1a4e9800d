"""Tiny checkpoints of every layout, as fixtures."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from tests.sot_paddle.convert import tiny_checkpoints as tiny


@pytest.fixture
def hf_shapes() -> Callable[..., dict[str, tuple[int, ...]]]:
    """Shapes of a plain BERT; ``classifier`` adds the task head, ``prefix`` the ``bert.``."""

    def make(prefix: str = "bert.", *, pooler: bool = True, classifier: bool = True):
        shapes = tiny.encoder_shapes(prefix)
        if pooler:
            shapes |= tiny.linear(f"{prefix}pooler.dense", tiny.HIDDEN, tiny.HIDDEN)
        if classifier:
            shapes |= tiny.linear("classifier", tiny.CLASSES, tiny.HIDDEN)
        return shapes

    return make


@pytest.fixture
def official_shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the original text release."""
    return {**tiny.encoder_shapes(), **tiny.official_head()}


@pytest.fixture
def ref_shapes() -> Callable[[str], dict[str, tuple[int, ...]]]:
    """Shapes of the PyTorch reference with a head."""
    return lambda head: {**tiny.encoder_shapes(), **tiny.ref_head(head)}


@pytest.fixture
def image_shapes() -> Callable[..., dict[str, tuple[int, ...]]]:
    """Shapes of a tiny image model: layout name, and options of its function above."""
    return lambda layout, **options: tiny.IMAGE_LAYOUTS[layout](**options)


@pytest.fixture
def random_arrays() -> Callable[..., dict[str, np.ndarray]]:
    """Random arrays of given shapes; counters are 7."""
    return tiny.fill


@pytest.fixture
def hf_config() -> dict[str, object]:
    """The config.json of the tiny plain BERT; 3 heads is not what 64 channels a head gives."""
    return {
        "model_type": "bert",
        "vocab_size": tiny.VOCAB,
        "hidden_size": tiny.HIDDEN,
        "num_hidden_layers": tiny.LAYERS,
        "num_attention_heads": tiny.HEADS,
        "intermediate_size": tiny.INNER,
        "max_position_embeddings": tiny.POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "relu",
        "id2label": {str(k): f"class {k}" for k in range(tiny.CLASSES)},
        "label2id": {f"class {k}": k for k in range(tiny.CLASSES)},
    }


@pytest.fixture
def published_state(shared_file) -> Callable[[str], dict]:
    """The content of a published state dict's table by name: tensors, layout, config."""

    def read(name: str) -> dict:
        return json.loads(shared_file(f"state_dicts/{name}.json").read_text(encoding="utf-8"))

    return read
