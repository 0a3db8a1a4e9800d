"""Options of the models, and files of options."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import NonNegativeInt

from sot_paddle import reading
from sot_paddle.options import (
    Options,
    Record,
    build_record,
    near_names,
    option,
    record,
    require_one_of,
)
from sot_paddle.options import require_positive as require_positive  # part of this module, too

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Activations of a text encoder's feed-forward layers, under transformers' names."""

LARGEST_EPSILON = 1e-3
"""What the kernel of Paddle's layer norm takes at most."""

PLAIN = "plain"
HEADS = ("mgcrp", PLAIN)
"""The second-order head, and a language model's own classifier."""

SECOND_ORDER = "mgcrp_qk"
"""Pooling of the second-order head of the text release (B.1)."""

CLASS_TOKEN_POOLINGS = ("pooler", "two_layer", "score", "fc", "none")
WORD_POOLINGS: Mapping[str, str] = {
    "mgcrp_qk": "QKCrossCovariance",
    "mgcrp": "MultiHeadCrossCovariance",
    "gap": "AveragePooling",
    "gcp": "CovariancePooling",
    "gcp_text": "BranchCovariance",
}
"""Poolings of word tokens: name -> class in `sot_paddle.heads.pooling`."""

POOLINGS = (*WORD_POOLINGS, *CLASS_TOKEN_POOLINGS)
SPANS = "spans"
"""Head of question answering: it scores every token and pools none."""

LAYERS = "layers"
"""Head on the class token of chosen layers of a language model."""

PRETRAINING = "pretraining"
"""Head of the tasks of a pre-training."""

LAYER_POOLINGS = ("concat", "max", "mean")
"""What makes one vector of the class tokens of several layers; the first is the default."""

CENTERINGS = ("scalar", "channel")
FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")
NORMALIZATIONS: Mapping[str, tuple[str, ...]] = {
    "mgcrp": ("svpn", "sqrt_d", "sqrt_t", "epn", "ln", "none"),
    "mgcrp_qk": ("svpn", "epn", "none"),
    "gcp": ("mpn",),
    "gcp_text": ("mpn", "svpn"),
}
"""Power norms each covariance pooling can use; the first is its default."""

NORMS = tuple(dict.fromkeys(itertools.chain(*NORMALIZATIONS.values())))
"""All power norms."""

OWN_CLASSIFIERS = ("pooler", "two_layer", "score")
"""Poolings of language models' own classifiers: what ``plain`` is for BERT, RoBERTa and GPT."""

VECTORIZED = ("mgcrp", "gcp_text")
"""Poolings whose matrices can be flattened as a whole or as their upper triangle (``vec``)."""


@record
class HeadConfig(Options):
    """Options of a classification head; what each means is in the table of ``docs/models.md``."""

    pooling: str = option("mgcrp", "of the words", choices=(*POOLINGS, SPANS, LAYERS))
    fusion: str | None = option(None, "of class token and words; None: sum_fc", choices=FUSIONS)
    normalization: str | None = option(None, "None: the pooling's first", choices=NORMS)
    q_dim: int = option(56, "rows of the single-head covariance, width of ``gcp_text``", low=1)
    k_dim: int = option(32, "columns of the single-head covariance", low=1)
    head_num_heads: int = option(6, "of multi-head MGCrP, and in the width of GCP", low=1)
    wr_dim: int = option(14, "width of each head's W and R", low=1)
    qkv_bias: bool = option(False, "bias of the W/R projection")
    qkv_dim: int = option(14, "GCP: ``int(sqrt(2 * head_num_heads * qkv_dim**2))`` channels", low=1)
    alpha: float = option(0.5, "svPN exponent", gt=0, high=1)
    num_iter: int = option(1, "svPN power iterations per triplet", low=1)
    num_sv: int | None = option(1, "svPN triplets, None for all", low=1)
    start: str = option("learn", "svPN start, learn: N(0, 1)", choices=("learn", "one"))
    mpn_iter: int = option(3, "Newton-Schulz iterations of ``mpn``", low=1)
    vec: str = option("full", "entries of a matrix that count", choices=("full", "triu"))
    centering: str = option("scalar", "of ``mgcrp`` and ``gcp``", choices=CENTERINGS)
    covariance_scale: str = option("published", "1/d, or 1/N", choices=("published", "tokens"))
    head_dropout: float | None = option(None, "None: the pooling's own", low=0, lt=1)
    mask_padding: bool = option(False, "statistics over valid tokens only")
    on_zero: str | None = option(None, "gradient at a zero covariance", choices=("nan", "zero"))
    layers: tuple[NonNegativeInt, ...] = option((), "of `LAYERS`; () for all")
    layer_pooling: str = option(LAYER_POOLINGS[0], "of `LAYERS`", choices=LAYER_POOLINGS)

    def __post_init__(self) -> None:
        typed = pooling_as_typed(self.pooling)
        if self.layers and self.pooling != LAYERS:
            raise ValueError(f"layers is an option of pooling {LAYERS!r}, got {typed}")
        norms = NORMALIZATIONS.get(self.pooling, ())
        require_one_of(f"normalization of {typed}", self.normalization, (None, *norms))
        if self.vec == "triu" and self.pooling not in VECTORIZED:
            raise ValueError(
                f"vec 'triu' is an option of pooling {' and '.join(VECTORIZED)}, got {typed}; "
                "leave it at 'full'"
            )

    @property
    def resolved_on_zero(self) -> str:
        """The gradient at a zero matrix: ``nan`` (published), or ``zero`` with ``mask_padding``."""
        return self.on_zero or ("zero" if self.mask_padding else "nan")


def pooling_as_typed(pooling: str) -> str:
    """A pooling as users give it: ``head 'plain'`` of a language model, or ``pooling 'gap'``."""
    head = {SECOND_ORDER: HEADS[0], **dict.fromkeys(OWN_CLASSIFIERS, PLAIN)}.get(pooling)
    return f"head {head!r}" if head else f"pooling {pooling!r}"


@record
class EncoderConfig(Options):
    """Dimensions of a text encoder, under transformers' names (bert-base-uncased by default)."""

    vocab_size: int = option(30522, low=1)
    hidden_size: int = option(768, low=1)
    num_hidden_layers: int = option(12, low=1)
    num_attention_heads: int = option(12, low=1)
    intermediate_size: int = option(3072, low=1)
    max_position_embeddings: int = option(512, low=1)
    type_vocab_size: int = option(2, low=1)
    hidden_act: str = option("gelu", choices=ACTIVATIONS)
    layer_norm_eps: float = option(1e-12, gt=0, high=LARGEST_EPSILON)
    hidden_dropout_prob: float = option(0.1, low=0, lt=1)
    attention_probs_dropout_prob: float = option(0.1, low=0, lt=1)
    initializer_range: float = option(0.02, gt=0)
    pad_token_id: int = option(0, low=0)
    freeze_encoder: bool = option(False)

    def __post_init__(self) -> None:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, got {self.hidden_size} "
                f"and {self.num_attention_heads}"
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id must be in [0, vocab_size), got {self.pad_token_id} "
                f"of {self.vocab_size}"
            )


def some(names: Iterable[str]) -> str:
    """The first eight names, and how many more there are."""
    names = list(names)
    rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + rest


HEAD_QKV_BIAS = "head_qkv_bias"
"""Flat name of the head's ``qkv_bias`` beside a backbone that has an option of that name."""


def sort_options(
    record: type[Record], options: Mapping[str, Any], *, where: str
) -> tuple[Record, HeadConfig]:
    """Sort flat options into the records of a backbone and a head.

    Where both have an option of one name (``qkv_bias``) it is the backbone's, and
    ``head_qkv_bias`` names the head's.

    Raises:
        ValueError: an unknown option (the near ones are listed), a wrong type, or a value out of
            range.
    """
    of_backbone = {field.name for field in dataclasses.fields(record)}
    of_head = {field.name for field in dataclasses.fields(HeadConfig)}
    flat = {HEAD_QKV_BIAS if name in of_backbone else name: name for name in of_head}
    for name in options:
        if name not in of_backbone and name not in flat:
            near = near_names(name, of_backbone | set(flat))
            raise ValueError(f"unknown option {name!r} for {where}; {near}")
    backbone = {name: value for name, value in options.items() if name in of_backbone}
    head = {flat[name]: value for name, value in options.items() if name not in of_backbone}
    return (
        build_record(record, backbone, where=where),
        build_record(HeadConfig, head, where=where),
    )


_INSTALLED = Path(__file__).with_name("configs")
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[1] / "configs"
"""The YAML files that come with the project: in an installed package, beside it in a checkout."""


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping, such as a JSON object, with safe loading, refusing duplicate keys.

    Args:
        path: a file holding one mapping; ``configs/...`` also where there is no such folder.

    Raises:
        ValueError: no such file, not YAML, a key twice, or not a mapping.
    """
    if not Path(path).exists() and Path(path).parts[:1] == (CONFIGS.name,):
        path = CONFIGS.joinpath(*Path(path).parts[1:])
    values = reading.read_yaml(path)
    if not isinstance(values or {}, dict):
        raise ValueError(f"{path} must hold a mapping of options, got {type(values).__name__}")
    return values or {}
