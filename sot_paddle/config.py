"""Frozen option records, and YAML files of options."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from sot_paddle import reading

Record = TypeVar("Record")

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Activations of a text encoder's feed-forward layers, under transformers' names."""

LARGEST_EPSILON = 1e-3
"""What the kernel of Paddle's layer norm takes at most."""

FINITE = {"allow_inf_nan": False}
"""What pydantic has to know of a record whose numbers are finite (``__pydantic_config__``)."""

HEADS = ("mgcrp", "plain")
"""The second-order head, and a language model's own classifier."""

SECOND_ORDER = "mgcrp_qk"
"""Pooling of the second-order head of the text release (B.1)."""

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

    __pydantic_config__: ClassVar = FINITE

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
        require_sizes(self, names)
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

    __pydantic_config__: ClassVar = FINITE

    def __post_init__(self) -> None:
        require_one_of("hidden_act", self.hidden_act, ACTIVATIONS)
        names = ("vocab_size", "hidden_size", "num_hidden_layers", "intermediate_size")
        names += ("max_position_embeddings", "type_vocab_size", "num_attention_heads")
        require_sizes(self, names)
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


def require_sizes(record: Any, names: Iterable[str]) -> None:
    """Refuse a record in which one of these options is below 1."""
    for name in names:
        require_positive(name, getattr(record, name))


def require_probability(name: str, value: float) -> None:
    """Refuse a number that is no probability below 1."""
    if not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be in [0, 1), got {value}")


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


_EXPECTED = {
    "missing": "be given",
    "greater_than": "be above {gt}",
    "greater_than_equal": "be at least {ge}",
    "less_than": "be below {lt}",
    "less_than_equal": "be at most {le}",
    "int_parsing": "be a whole number",
    "float_parsing": "be a number",
    "bool_parsing": "be true or false",
    "too_short": "have {min_length} values",
    "too_long": "have {max_length} values",
}
"""pydantic's type of an error -> what the option must, where its own words are longer."""


class OptionError(ValueError):
    """An option that cannot be taken.

    Attributes:
        option: its name, "" where several do not go together.
    """

    def __init__(self, message: str, option: str = "") -> None:
        super().__init__(message)
        self.option = option


def build_record(record: type[Record], values: Mapping[str, Any], *, where: str = "") -> Record:
    """Build a frozen option record from a mapping, by pydantic.

    Args:
        record: a dataclass type.
        values: option name to value; text of a number is a number, a list is a tuple.
        where: prefix of error messages, such as a file name.

    Raises:
        OptionError: the first option that is missing, unknown (the near names are listed), of a
            wrong type, or out of range, in one line.
    """
    from pydantic import ValidationError

    prefix = f"{where}: " if where else ""
    names = [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    for name in values:
        if name not in names:
            near = near_names(str(name), names)
            raise OptionError(f"{prefix}unknown option {name!r}; {near}", str(name))
    try:
        return _validator(record).validate_python(dict(values))
    except ValidationError as error:
        name = str(next(iter(error.errors()[0]["loc"]), ""))
        raise OptionError(f"{prefix}{_refusal(error, name)}", name) from error


def require_type(record: type, name: str, value: object, *, where: str) -> None:
    """Refuse a value of another type than an option has.

    Raises:
        ValueError: naming where it stands.
    """
    from pydantic import ValidationError

    try:
        _validator(typing.get_type_hints(record)[name]).validate_python(value)
    except ValidationError as error:
        raise ValueError(_refusal(error, where)) from error


@functools.cache
def _validator(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _refusal(error: Any, name: str) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":  # of our own checks
        return str(first["ctx"]["error"])
    expected = _EXPECTED.get(first["type"], first["msg"].removeprefix("Input should "))
    limits, value = first.get("ctx", {}), first["input"]
    got = "" if first["type"] == "missing" else f", got {value if limits else repr(value)}"
    return f"{name} must {expected.format(**limits)}{got}"


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
    for name in options:
        if name not in own and name not in flat:
            near = near_names(name, own | set(flat))
            raise ValueError(f"unknown option {name!r} for {where}; {near}")
    backbone = {name: value for name, value in options.items() if name in own}
    head = {flat[name]: value for name, value in options.items() if name not in own}
    return (
        build_record(record, backbone, where=where),
        build_record(HeadConfig, head, where=where),
    )


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
    if Path(path).suffix == ".json":
        return reading.read_json(path, strict=True)
    values = reading.read_yaml(path)
    if not isinstance(values or {}, dict):
        raise ValueError(f"{path} must hold a mapping of options, got {type(values).__name__}")
    return values or {}
