"""Tiny checkpoints of every layout, as fixtures."""

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from sot_paddle.checkpoint import write_tensors
from sot_paddle.convert import ConversionPlan, convert_file
from tests.sot_paddle.convert import tiny_checkpoints as tiny


@dataclass(frozen=True)
class Toy:
    """A random checkpoint of a layout, its tensors, and what its conversion gave; not to change."""

    layout: str
    model: str
    path: Path
    arrays: Mapping[str, np.ndarray]
    converted: Path
    plan: ConversionPlan

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the converted tensors."""
        return self.plan.destination_shapes


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> Callable[[str], Toy]:
    """The checkpoint of a layout by its name, written and converted once."""

    @functools.cache
    def make(layout: str) -> Toy:
        folder, model = tmp_path_factory.mktemp(layout), tiny.MODELS[layout]
        path, converted = folder / "toy.safetensors", folder / "converted.safetensors"
        arrays = tiny.fill(tiny.LAYOUTS[layout]())
        for name in arrays:
            if name.endswith("num_batches_tracked"):
                arrays[name] = np.zeros((), np.int64)
            elif name.endswith("relative_position_index"):
                arrays[name] = arrays[name].astype(np.int64)
        write_tensors(path, arrays, {"format": "pt"})
        made = convert_file(path, converted, layout, model)
        return Toy(layout, model, path, arrays, converted, made.plan)

    return make


@pytest.fixture
def hf_shapes() -> Callable[..., dict[str, tuple[int, ...]]]:
    """Shapes of a plain BERT; ``classifier`` adds the task head, ``prefix`` the ``bert.``."""

    def make(prefix: str = "bert.", *, pooler: bool = True, classifier: bool = True):
        return tiny.bert(prefix, pooler=pooler, classifier=classifier)

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
    return lambda layout, **options: tiny.LAYOUTS[layout](**options)


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
