"""Frozen option records, and YAML files of options."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from sot_paddle import reading

Record = TypeVar("Record")

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Activations of a text encoder's feed-forward layers, under transformers' names."""

LARGEST_EPSILON = 1e-3
"""What the kernel of Paddle's layer norm takes at most."""

LARGEST_SIZE = 1 << 20
LARGEST_SIZES: Mapping[str, int] = {
    "vocab_size": 1 << 24,
    "num_hidden_layers": 1024,
    "depth": 1024,
    "depths": 1024,
    "img_size": 1 << 13,
    "in_chans": 1024,
    **dict.fromkeys(("q_dim", "k_dim", "wr_dim", "head_num_heads", "qkv_dim"), 1 << 13),
    **dict.fromkeys(("num_iter", "num_sv", "mpn_iter"), 1000),
}
"""Size -> what it can be at most, `LARGEST_SIZE` for the others."""

CLASS_TOKEN_POOLINGS = ("pooler", "two_layer", "score", "fc", "none")
POOLINGS = ("mgcrp_qk", "mgcrp", "gap", "gcp", "gcp_text", *CLASS_TOKEN_POOLINGS)
SPANS = "spans"
"""Head of question answering: it scores every token and pools none."""

LAYERS = "layers"
"""Head on the class token of chosen layers of a language model."""

LAYER_POOLINGS = ("concat", "max", "mean")
"""What makes one vector of the class tokens of several layers; the first is the default."""

FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")
NORMALIZATIONS: Mapping[str, tuple[str, ...]] = {
    "mgcrp": ("svpn", "sqrt_d", "sqrt_t", "epn", "ln", "none"),
    "mgcrp_qk": ("svpn", "epn", "none"),
    "gcp": ("mpn",),
    "gcp_text": ("mpn", "svpn"),
}
"""Power norms each covariance pooling can use; the first is its default."""

VECTORIZED = ("mgcrp", "gcp_text")
"""Poolings whose matrices can be flattened as a whole or as their upper triangle (``vec``)."""


@dataclass(frozen=True)
class HeadConfig:
    """Options of a classification head; see ``docs/heads.md`` for the table.

    Attributes:
        pooling: how word tokens become one vector (``POOLINGS``), or `SPANS`, or `LAYERS`.
        fusion: how class token and words are combined (``FUSIONS``); None means ``sum_fc``.
        normalization: power norm of a covariance pooling; None means that pooling's default.
        q_dim: rows of the single-head covariance, width of ``gcp_text`` (text release).
        k_dim: columns of the single-head covariance.
        head_num_heads: heads of multi-head MGCrP, and of the width formula of GCP.
        wr_dim: width of each head's W and R.
        qkv_bias: whether the W/R projection has a bias.
        qkv_dim: GCP reduces to ``int(sqrt(2 * head_num_heads * qkv_dim**2))`` channels.
        alpha: svPN exponent.
        num_iter: svPN power iterations per triplet.
        num_sv: svPN triplets, None for all.
        start: svPN start vector, ``"learn"`` (N(0, 1), trained) or ``"one"``.
        mpn_iter: Newton-Schulz iterations of ``mpn``.
        vec: which entries of ``mgcrp`` and ``gcp_text`` matrices count: ``"full"`` or ``"triu"``
            (upper triangle, row-major; what ``mpn`` always takes).
        centering: ``"scalar"`` (published) or ``"channel"``; ``mgcrp_qk`` is always per channel.
        covariance_scale: GCP's factor, ``"published"`` (1/d) or ``"tokens"`` (1/N).
        head_dropout: None means .8 for ``mgcrp_qk``, the encoder's hidden dropout for
            ``pooler``, ``two_layer`` (``drop_rate`` of images) and ``layers``, and 0 otherwise.
        mask_padding: statistics over valid tokens only.
        layers: numbers of the layers of `LAYERS`, from 0 and in their order; () for all.
        layer_pooling: how they become one vector (``LAYER_POOLINGS``).
        on_zero: ``"nan"`` (published) or ``"zero"`` for the gradient at a zero covariance; None
            means ``"zero"`` exactly when ``mask_padding`` is on.
    """

    pooling: str = "mgcrp"
    fusion: str | None = None
    normalization: str | None = None
    q_dim: int = 56
    k_dim: int = 32
    head_num_heads: int = 6
    wr_dim: int = 14
    qkv_bias: bool = False
    qkv_dim: int = 14
    alpha: float = 0.5
    num_iter: int = 1
    num_sv: int | None = 1
    start: str = "learn"
    mpn_iter: int = 3
    vec: str = "full"
    centering: str = "scalar"
    covariance_scale: str = "published"
    head_dropout: float | None = None
    mask_padding: bool = False
    on_zero: str | None = None
    layers: tuple[int, ...] = ()
    layer_pooling: str = LAYER_POOLINGS[0]

    def __post_init__(self) -> None:
        require_one_of("pooling", self.pooling, (*POOLINGS, SPANS, LAYERS))
        require_one_of("layer_pooling", self.layer_pooling, LAYER_POOLINGS)
        if self.layers and self.pooling != LAYERS:
            raise ValueError(f"layers is an option of pooling {LAYERS!r}, got {self.pooling!r}")
        if any(layer < 0 for layer in self.layers):
            raise ValueError(f"layers must be numbers from 0, got {self.layers}")
        require_one_of("fusion", self.fusion, (None, *FUSIONS))
        allowed = NORMALIZATIONS.get(self.pooling, ())
        what = f"normalization of pooling {self.pooling!r}"
        require_one_of(what, self.normalization, (None, *allowed))
        require_one_of("start", self.start, ("learn", "one"))
        require_one_of("vec", self.vec, ("full", "triu"))
        if self.vec == "triu" and self.pooling not in VECTORIZED:
            raise ValueError(
                f"vec 'triu' is an option of pooling {' and '.join(VECTORIZED)}, got pooling "
                f"{self.pooling!r}; leave it at 'full'"
            )
        require_one_of("centering", self.centering, ("scalar", "channel"))
        require_one_of("covariance_scale", self.covariance_scale, ("published", "tokens"))
        require_one_of("on_zero", self.on_zero, (None, "nan", "zero"))
        names = ("q_dim", "k_dim", "head_num_heads", "wr_dim", "qkv_dim", "num_iter", "mpn_iter")
        names += () if self.num_sv is None else ("num_sv",)
        require_buildable(require_sizes(self, names), 0)
        if not 0.0 < self.alpha <= 1.0:
            raise ValueError(f"alpha must be in (0, 1], got {self.alpha}")
        if self.head_dropout is not None:
            require_probability("head_dropout", self.head_dropout)

    @property
    def resolved_on_zero(self) -> str:
        """The zero-matrix rule after the default is filled in."""
        return self.on_zero or ("zero" if self.mask_padding else "nan")


@dataclass(frozen=True)
class EncoderConfig:
    """Dimensions of a text encoder, under transformers' names (bert-base-uncased by default)."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    pad_token_id: int = 0
    freeze_encoder: bool = False

    def __post_init__(self) -> None:
        check_finite(self)
        require_one_of("hidden_act", self.hidden_act, ACTIVATIONS)
        names = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
        names += ("max_position_embeddings", "type_vocab_size")
        sizes = require_sizes(self, names)
        require_positive("num_attention_heads", self.num_attention_heads)
        rows = self.vocab_size + self.max_position_embeddings + self.type_vocab_size
        layer = self.hidden_size * (4 * self.hidden_size + 2 * self.intermediate_size)
        require_buildable(sizes, rows * self.hidden_size + self.num_hidden_layers * layer)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads, got {self.hidden_size} "
                f"and {self.num_attention_heads}"
            )
        if not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(
                f"pad_token_id must be in [0, vocab_size), got {self.pad_token_id} "
                f"of {self.vocab_size}"
            )
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            require_probability(name, getattr(self, name))
        for name in ("layer_norm_eps", "initializer_range"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        if self.layer_norm_eps > LARGEST_EPSILON:
            raise ValueError(
                f"layer_norm_eps must be at most {LARGEST_EPSILON}, which Paddle's layer norm "
                f"takes, got {self.layer_norm_eps}"
            )


def require_one_of(name: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not one of the allowed ones; those close to it are named."""
    allowed = tuple(allowed)
    if value in allowed:
        return
    named = [str(one) for one in allowed if one is not None]
    if not named:
        raise ValueError(f"{name} cannot be set (it has none), got {value!r}")
    meant = _meant(str(value), named)
    meant = f"; {meant}" if meant else ""
    raise ValueError(f"{name} must be one of {', '.join(named)}, got {value!r}{meant}")


def require_positive(name: str, value: int) -> None:
    """Refuse an integer below 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def require_sizes(record: Any, names: Iterable[str]) -> dict[str, int]:
    """The options of these names; one below 1 is refused."""
    sizes = {name: getattr(record, name) for name in names}
    for name, value in sizes.items():
        require_positive(name, value)
    return sizes


def require_probability(name: str, value: float) -> None:
    """Refuse a number that is no probability below 1."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be in [0, 1), got {value}")


LARGEST_NUMBER = 2**32 - 1
"""Largest number of an option: a seed of NumPy's; every count and size stays far below."""


def check_finite(record: Any) -> None:
    """Refuse an option record in which a number is infinite, NaN or larger than `LARGEST_NUMBER`.

    Raises:
        ValueError: naming the first such option.
    """
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{item.name} must be a finite number, got {number}")
            if isinstance(number, int | float) and abs(number) > LARGEST_NUMBER:
                raise ValueError(f"{item.name} must be at most {LARGEST_NUMBER}, got {number}")


def near_names(name: str, known: Iterable[str]) -> str:
    """Say which known names are close to a misspelt one, or list them all."""
    known = sorted(known)
    return _meant(name, known) or f"known: {', '.join(known)}"


def _meant(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def some(names: Iterable[str]) -> str:
    """The first eight names, and how many more there are."""
    names = list(names)
    rest = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + rest


def _matches(value: object, annotation: object) -> bool:
    """Whether a value has exactly the annotated type (a bool is no int, an int is a float)."""
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union:
        return any(_matches(value, option) for option in typing.get_args(annotation))
    if annotation is type(None):
        return value is None
    origin = typing.get_origin(annotation)
    if origin in (tuple, list):
        inner = typing.get_args(annotation)[0]
        return isinstance(value, (list, tuple)) and all(_matches(item, inner) for item in value)
    if annotation is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)  # type: ignore[arg-type]


def _spelled(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def build_record(record: type[Record], values: Mapping[str, Any], *, where: str = "") -> Record:
    """Build a frozen option record from a mapping, refusing unknown keys and wrong types.

    Args:
        record: a dataclass type.
        values: option name to value; an int is accepted for a float, a list for a tuple, nothing
            else is converted.
        where: prefix of error messages, such as a file name.

    Raises:
        ValueError: a missing or unknown key (the near names are listed), a wrong type (``1e-5``
            in YAML is a string: write ``1.0e-5``), or a value out of range.
    """
    prefix = f"{where}: " if where else ""
    annotations = typing.get_type_hints(record)
    fields = {field.name: field for field in dataclasses.fields(record)}  # type: ignore[arg-type]
    for name, field in fields.items():
        without_default = field.default is field.default_factory is dataclasses.MISSING
        if without_default and name not in values:
            raise ValueError(f"{prefix}{name} is missing")
    clean = {}
    for key, value in values.items():
        if key not in fields:
            raise ValueError(f"{prefix}unknown option {key!r}; {near_names(str(key), fields)}")
        if not _matches(value, annotations[key]):
            hint = ""
            if isinstance(value, str) and _is_number(value):
                hint = f" (YAML reads {value} as text: write {_with_point(float(value))})"
            raise ValueError(
                f"{prefix}option {key!r} must be {_spelled(annotations[key])}, "
                f"got {value!r} ({type(value).__name__}){hint}"
            )
        as_float = annotations[key] in (float, float | None) and isinstance(value, int)
        as_tuple = isinstance(value, list)  # records hold no lists
        clean[key] = float(value) if as_float else tuple(value) if as_tuple else value
    try:
        return record(**clean)
    except ValueError as error:
        raise ValueError(f"{prefix}{error}") from error


def require_type(record: type, name: str, value: object, *, where: str) -> None:
    """Refuse a value of another type than an option has.

    Raises:
        ValueError: naming where it stands.
    """
    annotation = typing.get_type_hints(record)[name]
    if not _matches(value, annotation):
        raise ValueError(f"{where} must be {_spelled(annotation)}, got {value!r}")


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
    own = {field.name for field in dataclasses.fields(record)}  # type: ignore[arg-type]
    of_head = {field.name for field in dataclasses.fields(HeadConfig)}
    flat = {HEAD_QKV_BIAS if name in own else name: name for name in of_head}
    unknown = sorted(set(options) - own - set(flat))
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0]!r} for {where}; {near_names(unknown[0], own | set(flat))}"
        )
    backbone = {name: value for name, value in options.items() if name in own}
    head = {flat[name]: value for name, value in options.items() if name not in own}
    return (
        build_record(record, backbone, where=where),
        build_record(HeadConfig, head, where=where),
    )


def require_buildable(sizes: Mapping[str, int], parameters: int) -> None:
    """Refuse a model that this machine cannot hold, before memory is asked for.

    Args:
        sizes: option -> length, depth or width.
        parameters: of the model, at least.

    Raises:
        ValueError: naming the option, or what the model would need.
    """
    for name, value in sizes.items():
        if value > LARGEST_SIZES.get(name, LARGEST_SIZE):
            most = LARGEST_SIZES.get(name, LARGEST_SIZE)
            raise ValueError(f"{name} must be at most {most:,}, got {value:,}")
    needed, there = 4 * parameters, reading.machine_memory()
    if needed > there:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"a model with {largest} {sizes[largest]:,} has at least {parameters:,} parameters: "
            f"{needed / 1e9:,.0f} GB, and this machine has {there / 1e9:,.0f} GB"
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _with_point(number: float) -> str:
    """Spell a number so that YAML reads it as one: 1.0e-05, not 1e-05."""
    mantissa, exponent, power = repr(number).partition("e")
    return f"{mantissa}{'' if '.' in mantissa or not exponent else '.0'}{exponent}{power}"


_INSTALLED = Path(__file__).with_name("configs")
CONFIGS = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[1] / "configs"
"""The YAML files that come with the project: in an installed package, beside it in a checkout."""


def load_yaml(path: str | Path) -> dict[str, Any]:
    """Read a YAML mapping with safe loading, refusing duplicate keys; or a JSON object (.json).

    Args:
        path: a file holding one mapping; ``configs/...`` also where there is no such folder.

    Returns:
        The mapping (empty for an empty file).

    Raises:
        ValueError: no such file, not YAML, a key twice, or not a mapping.
    """
    if not Path(path).exists() and Path(path).parts[:1] == (CONFIGS.name,):
        path = CONFIGS.joinpath(*Path(path).parts[1:])
    if Path(path).suffix == ".json":  # its 2e-05 is a number, which YAML reads as text
        return reading.read_json(path, strict=True, unique=True)
    values = reading.read_yaml(path)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a mapping of options, got {type(values).__name__}")
    return values
