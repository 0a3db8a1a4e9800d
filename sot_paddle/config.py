"""Frozen option records, and YAML files of options."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic
from pydantic import ConfigDict, TypeAdapter, ValidationError, ValidationInfo, field_validator

from sot_paddle import reading

Record = TypeVar("Record")

LARGEST_NUMBER = 2**32 - 1
"""Of an option with a smallest value: a seed of NumPy's; every count and size is far below it."""


def option(
    default: Any,
    text: str = "",
    *,
    choices: Sequence[Any] = (),
    low: float | None = None,
    high: float | None = None,
    length: int | None = None,
    flags: Sequence[str] = (),
    resumable: bool = False,
    **limits: float,
) -> Any:
    """Declare an option as a field of a record.

    Args:
        default: its value when it is not given.
        text: what ``--help`` says.
        choices: the values that it may have beside None, () for any.
        low: smallest value.
        high: largest value, `LARGEST_NUMBER` where there is a smallest one.
        length: number of values of a list.
        flags: further spellings of its flag.
        resumable: whether a resumed run may change it, as it does not enter a training step.
        limits: ``gt`` and ``lt``, bounds that are no values themselves.
    """
    facts = {"help": text, "choices": choices, "flags": flags, "resumable": resumable}
    high = LARGEST_NUMBER if high is None and low is not None else high
    limits |= {"ge": low, "le": high, "min_length": length, "max_length": length}
    facts |= {name: limit for name, limit in limits.items() if limit is not None}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=facts)
    return dataclasses.field(default=default, metadata=facts)


def record(kind: type) -> type:
    """Make a class a frozen record of options, checked by pydantic.

    An inherited option that is given another default keeps its help and its range.
    """
    inherited = {
        name: item
        for base in reversed(kind.__mro__[1:])
        for name, item in vars(base).get("__dataclass_fields__", {}).items()
    }
    for name, default in list(vars(kind).items()):
        if name in inherited and not isinstance(default, dataclasses.Field):
            again = dataclasses.field(default=default, metadata=inherited[name].metadata)
            setattr(kind, name, again)
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    return pydantic.dataclasses.dataclass(frozen=True, kw_only=True, config=config)(kind)


@record
class Options:
    """What every record of options does with the values that it is given."""

    @field_validator("*", mode="before")
    @classmethod
    def read_text(cls, value: Any, info: ValidationInfo) -> Any:
        """The value that a text means: ``none``, numbers with commas between, ``~`` for home."""
        item = cls.__dataclass_fields__[info.field_name]
        if isinstance(value, str) and value.startswith("~/"):
            return os.path.expanduser(value)
        if "None" in item.type and str(value).lower() in ("none", "null"):
            return value if value in item.metadata.get("choices", ()) else None
        if "tuple" in item.type and isinstance(value, str | int | float):
            return str(value).split(",")
        return value

    @field_validator("*")
    @classmethod
    def check_choice(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse a value that is none of the option's choices."""
        choices = cls.__dataclass_fields__[info.field_name].metadata.get("choices")
        if choices and value is not None:
            require_one_of(info.field_name, value, choices)
        return value

    def __post_init__(self) -> None:
        """Check what the fields are together, and fill in what follows from others."""

    def require(self, *names: str) -> None:
        """Refuse a command without these options.

        Raises:
            ValueError: naming the first that is not given.
        """
        for name in names:
            if not getattr(self, name):
                raise ValueError(f"{name} is required (--{name}, or in the --config file)")


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
    try:
        _validator(typing.get_type_hints(record)[name]).validate_python(value)
    except ValidationError as error:
        raise ValueError(_refusal(error, where)) from error


@functools.cache
def _validator(kind: Any) -> Any:
    return TypeAdapter(kind)


def _refusal(error: Any, name: str) -> str:
    first = error.errors()[0]
    if first["type"] == "value_error":  # of our own checks
        return str(first["ctx"]["error"])
    expected = _EXPECTED.get(first["type"], first["msg"].removeprefix("Input should "))
    limits, value = first.get("ctx", {}), first["input"]
    whole = {n: int(v) for n, v in limits.items() if isinstance(v, float) and v.is_integer()}
    got = "" if first["type"] == "missing" else f", got {value if limits else repr(value)}"
    return f"{name} must {expected.format(**limits | whole)}{got}"


ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "tanh")
"""Activations of a text encoder's feed-forward layers, under transformers' names."""

LARGEST_EPSILON = 1e-3
"""What the kernel of Paddle's layer norm takes at most."""

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

CENTERINGS = ("scalar", "channel")
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


@record
class HeadConfig(Options):
    """Options of a classification head; see ``docs/heads.md`` for the table."""

    pooling: str = option(
        "mgcrp", "how word tokens become one vector", choices=(*POOLINGS, SPANS, LAYERS)
    )
    fusion: str | None = option(None, "of class token and words; None: sum_fc", choices=FUSIONS)
    normalization: str | None = option(
        None,
        "power norm of a covariance; None: the first of the pooling's `NORMALIZATIONS`",
        choices=sorted({name for names in NORMALIZATIONS.values() for name in names}),
    )
    q_dim: int = option(56, "rows of the single-head covariance, width of ``gcp_text``", low=1)
    k_dim: int = option(32, "columns of the single-head covariance", low=1)
    head_num_heads: int = option(6, "of multi-head MGCrP, and in the width of GCP", low=1)
    wr_dim: int = option(14, "width of each head's W and R", low=1)
    qkv_bias: bool = option(False, "bias of the W/R projection")
    qkv_dim: int = option(
        14, "GCP reduces to ``int(sqrt(2 * head_num_heads * qkv_dim**2))`` channels", low=1
    )
    alpha: float = option(0.5, "svPN exponent", gt=0, high=1)
    num_iter: int = option(1, "svPN power iterations per triplet", low=1)
    num_sv: int | None = option(1, "svPN triplets, None for all", low=1)
    start: str = option("learn", "svPN start, learn: N(0, 1)", choices=("learn", "one"))
    mpn_iter: int = option(3, "Newton-Schulz iterations of ``mpn``", low=1)
    vec: str = option(
        "full",
        "entries of ``mgcrp`` and ``gcp_text`` matrices that count: all, or the upper triangle, "
        "row-major (what ``mpn`` always takes)",
        choices=("full", "triu"),
    )
    centering: str = option(
        "scalar", "``scalar`` is published; ``mgcrp_qk`` is per channel", choices=CENTERINGS
    )
    covariance_scale: str = option(
        "published", "GCP's factor: 1/d, or 1/N of the tokens", choices=("published", "tokens")
    )
    head_dropout: float | None = option(
        None,
        "None: .8 for ``mgcrp_qk``, the encoder's hidden dropout for ``pooler``, ``two_layer`` "
        "(``drop_rate`` of images) and ``layers``, and 0 otherwise",
        low=0,
        lt=1,
    )
    mask_padding: bool = option(False, "statistics over valid tokens only")
    on_zero: str | None = option(
        None,
        "gradient at a zero covariance, ``nan`` is published; None: ``zero`` exactly when "
        "``mask_padding`` is on",
        choices=("nan", "zero"),
    )
    layers: tuple[int, ...] = option((), "numbers of the layers of `LAYERS`, from 0; () for all")
    layer_pooling: str = option(
        LAYER_POOLINGS[0], "how they become one vector", choices=LAYER_POOLINGS
    )

    def __post_init__(self) -> None:
        if self.layers and self.pooling != LAYERS:
            raise ValueError(f"layers is an option of pooling {LAYERS!r}, got {self.pooling!r}")
        if any(layer < 0 for layer in self.layers):
            raise ValueError(f"layers must be numbers from 0, got {self.layers}")
        what = f"normalization of pooling {self.pooling!r}"
        require_one_of(what, self.normalization, (None, *NORMALIZATIONS.get(self.pooling, ())))
        if self.vec == "triu" and self.pooling not in VECTORIZED:
            raise ValueError(
                f"vec 'triu' is an option of pooling {' and '.join(VECTORIZED)}, got pooling "
                f"{self.pooling!r}; leave it at 'full'"
            )

    @property
    def resolved_on_zero(self) -> str:
        """The zero-matrix rule after the default is filled in."""
        return self.on_zero or ("zero" if self.mask_padding else "nan")


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
