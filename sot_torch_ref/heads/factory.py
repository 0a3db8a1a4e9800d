"""Configuration of a head and its factory: strings become objects here, once."""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from sot_torch_ref.heads import fusion as fusions
from sot_torch_ref.heads.layer_tokens import WAYS, LayerTokens
from sot_torch_ref.heads.pooling import WORD_POOLINGS
from sot_torch_ref.heads.power_norm import EPN, MPN, STARTS, ScaleNorm, SvPN

# Normalizations that a pooling accepts, its default first; the others have no matrix.
NORMALIZATIONS: dict[str, tuple[str, ...]] = {
    "mgcrp_qk": ("svpn", "epn", "none"),
    "mgcrp": ("svpn", "sqrt_d", "sqrt_t", "epn", "ln", "none"),
    "gcp": ("mpn",),
    "gcp_text": ("mpn", "svpn"),
}
FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss", "class_token", "word_tokens")
POOLINGS_WITH_VEC = ("mgcrp", "gcp_text")
# they use the class token alone: no fusion
CLASS_TOKEN_POOLINGS = ("pooler", "two_layer", "score", "fc", "none")
POOLINGS = (*CLASS_TOKEN_POOLINGS, *WORD_POOLINGS, "spans", "layers")
FUSIONS_WITHOUT_CLASS_TOKEN = ("word_tokens", "aggre_all")
MGCRP_QK_DROPOUT = 0.8
COUNTS = ("q_dim", "k_dim", "head_num_heads", "wr_dim", "qkv_dim", "num_iter", "mpn_iter")


def _require(condition: bool, what: str, expected: str, got: object) -> None:
    if not condition:
        raise ValueError(f"{what} must be {expected}, got {got!r}")


def require_choice(what: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless ``value`` is one of the allowed strings."""
    _require(isinstance(value, str) and value in allowed, what, f"one of {list(allowed)}", value)


def require_count(what: str, value: object) -> None:
    """Raise ValueError unless ``value`` is an int (not a bool) of at least 1."""
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    _require(valid, what, "an integer of at least 1", value)


def require_flag(what: str, value: object) -> None:
    """Raise ValueError unless ``value`` is True or False."""
    _require(isinstance(value, bool), what, "True or False", value)


def require_probability(what: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a number in [0, 1)."""
    valid = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
    _require(valid, what, "a number in [0, 1)", value)


def require_positive(what: str, value: object) -> None:
    """Raise ValueError unless ``value`` is a finite number above 0."""
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    _require(valid and 0 < value < float("inf"), what, "a number above 0", value)


@dataclass(frozen=True)
class HeadConfig:
    """Head keys of ``create_model``; a None means the default of the pooling.

    Attributes:
        pooling: A name of ``CLASS_TOKEN_POOLINGS`` or ``WORD_POOLINGS``, "spans" or "layers".
        fusion: None (= "sum_fc"), "sum_fc", "concat", "aggre_all", "sum_loss", "class_token"
            (ClassT only) or "word_tokens" (WordT only).
        normalization: None ("svpn" for mgcrp and mgcrp_qk, "mpn" for gcp and gcp_text) or a name
            that ``NORMALIZATIONS`` allows for the pooling.
        q_dim, k_dim: Branch widths of mgcrp_qk; q_dim is also that of gcp_text.
        head_num_heads, wr_dim, qkv_bias: Heads, width and bias of mgcrp; the heads also set gcp.
        qkv_dim: Width per head that sets the reduced width of gcp.
        alpha, num_iter, num_sv, start: Options of svPN, see ``functional.sv_power_norm``.
        mpn_iter: Newton-Schulz iterations of gcp and gcp_text.
        vec: "full" or "triu" (upper triangle), for mgcrp and gcp_text; "mpn" is always "triu".
        centering: "scalar" (QUIRK, published) or "channel", for mgcrp and gcp; mgcrp_qk is
            always centred per channel.
        covariance_scale: "published" (QUIRK, 1/d) or "tokens" (1/N), for gcp.
        head_dropout: None (0.8 for mgcrp_qk, the encoder's for pooler, two_layer and layers, 0
            otherwise) or [0, 1).
        mask_padding: Whether padded tokens are left out of every statistic of the head.
        on_zero: None ("zero" with mask_padding, else "nan"), "nan" or "zero".
        layers: Encoder layers of pooling "layers", from 0; () = all of them.
        layer_pooling: How it joins them: "concat", "max" or "mean".

    Raises:
        ValueError: A value out of range or of the wrong type, or a normalization that the pooling
            does not accept.

    Source: specs A.1 to A.6, B.1 and B.4.
    """

    pooling: str = "mgcrp_qk"
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
    layer_pooling: str = "concat"

    def __post_init__(self) -> None:
        require_choice("pooling", self.pooling, POOLINGS)
        if self.fusion is not None:
            require_choice("fusion", self.fusion, FUSIONS)
        self._check_normalization()
        for name in COUNTS if self.num_sv is None else (*COUNTS, "num_sv"):
            require_count(name, getattr(self, name))
        require_positive("alpha", self.alpha)
        require_choice("start", self.start, STARTS)
        require_choice("vec", self.vec, ("full", "triu"))
        fits = self.vec == "full" or self.pooling in POOLINGS_WITH_VEC
        _require(fits, f"vec of pooling {self.pooling!r}", "'full'", self.vec)
        require_choice("centering", self.centering, ("scalar", "channel"))
        require_choice("covariance_scale", self.covariance_scale, ("published", "tokens"))
        if self.head_dropout is not None:
            require_probability("head_dropout", self.head_dropout)
        if self.on_zero is not None:
            require_choice("on_zero", self.on_zero, ("nan", "zero"))
        require_flag("qkv_bias", self.qkv_bias)
        require_flag("mask_padding", self.mask_padding)
        require_choice("layer_pooling", self.layer_pooling, WAYS)

    def _check_normalization(self) -> None:
        allowed = NORMALIZATIONS.get(self.pooling, ())
        if self.normalization is None or self.normalization in allowed:
            return
        expected = f"None or one of {list(allowed)}" if allowed else "None (it has no matrix)"
        raise ValueError(
            f"normalization of pooling {self.pooling!r} must be {expected}, "
            f"got {self.normalization!r}"
        )

    @property
    def zero_mode(self) -> str:
        """``on_zero`` with its default filled in."""
        return self.on_zero or ("zero" if self.mask_padding else "nan")

    def dropout(self, encoder_dropout: float) -> float:
        """``head_dropout`` with its default filled in; ClassT alone has none (specs B.1 step 1)."""
        if self.head_dropout is not None:
            return self.head_dropout
        if self.fusion == "class_token" and self.pooling not in CLASS_TOKEN_POOLINGS:
            return 0.0
        if self.pooling in ("pooler", "two_layer", "layers"):
            return encoder_dropout
        return MGCRP_QK_DROPOUT if self.pooling == "mgcrp_qk" else 0.0


def _svpn(config: HeadConfig, dim: int) -> nn.Module:
    return SvPN(
        dim,
        alpha=config.alpha,
        num_iter=config.num_iter,
        num_sv=config.num_sv,
        start=config.start,
        on_zero=config.zero_mode,
    )


NORM_BUILDERS: dict[str, Callable[[HeadConfig, int], nn.Module]] = {
    "svpn": _svpn,
    "sqrt_d": lambda config, dim: ScaleNorm(dim**-0.5, learnable=False),
    "sqrt_t": lambda config, dim: ScaleNorm(dim**-0.5, learnable=True),
    "epn": lambda config, dim: EPN(),
    "ln": lambda config, dim: nn.LayerNorm(dim, eps=1e-5),
    "none": lambda config, dim: nn.Identity(),
    "mpn": lambda config, dim: MPN(config.mpn_iter, on_zero=config.zero_mode),
}


def build_norm(config: HeadConfig, dim: int) -> nn.Module:
    """Normalization layer for matrices of ``dim`` columns."""
    name = config.normalization or NORMALIZATIONS[config.pooling][0]
    return NORM_BUILDERS[name](config, dim)


CLASS_TOKEN_HEADS: dict[str, type[nn.Module]] = {
    "pooler": fusions.Pooler,
    "two_layer": fusions.TwoLayer,
    "score": fusions.Score,
    "fc": fusions.FC,
    "none": fusions.ClassToken,
}
WORD_HEADS: dict[str, type[fusions.WordHead]] = {
    "sum_fc": fusions.SumFC,
    "sum_loss": fusions.SumLoss,
    "concat": fusions.Concat,
    "aggre_all": fusions.AggregateAll,
    "word_tokens": fusions.WordTokens,
}


def build_head(
    config: HeadConfig,
    *,
    hidden_size: int,
    num_classes: int,
    has_class_token: bool = True,
    encoder_dropout: float = 0.0,
    init_std: float = 0.02,
    num_layers: int = 0,
) -> nn.Module:
    """Build and initialise the head of a configuration.

    Args:
        config: Head keys.
        hidden_size: Channels C of the tokens.
        num_classes: Number K of scores, >= 1.
        has_class_token: Whether the features will have a class token.
        encoder_dropout: Default dropout of the heads "pooler" and "two_layer".
        init_std: Standard deviation of the linear weights.
        num_layers: Encoder layers of which the features have the hidden states.

    Returns:
        Module, Features -> (logits, taps).

    Raises:
        ValueError: The combination needs a class token and there is none, or a count below 1.

    Source: specs A.6 and B.1.
    """
    require_count("hidden_size", hidden_size)
    require_count("num_classes", num_classes)
    if not has_class_token:
        _require_possible_without_class_token(config)
    dropout = config.dropout(encoder_dropout)
    if config.pooling == "spans":
        _require(num_classes == 2, "num_classes of pooling 'spans'", "2", num_classes)
        head: nn.Module = fusions.Spans(hidden_size, dropout=dropout)
    elif config.pooling == "layers":
        chosen = config.layers or tuple(range(num_layers))
        _require(max(chosen) < num_layers, "layers", f"below {num_layers}", chosen)
        head = LayerTokens(hidden_size, num_classes, chosen, config.layer_pooling, dropout)
    elif config.pooling in CLASS_TOKEN_HEADS:
        if config.fusion is not None:
            warnings.warn(
                f"pooling {config.pooling!r} uses the class token alone and ignores "
                f"fusion={config.fusion!r}; leave fusion=None",
                UserWarning,
                stacklevel=2,
            )
        head = CLASS_TOKEN_HEADS[config.pooling](hidden_size, num_classes, dropout=dropout)
    elif config.fusion == "class_token":
        head = fusions.ClassToken(hidden_size, num_classes, dropout=dropout)
    else:
        head = _word_head(config, hidden_size, num_classes, has_class_token, dropout)
    initialise(head, init_std)
    return head


def _word_head(
    config: HeadConfig, dim: int, num_classes: int, has_class_token: bool, dropout: float
) -> nn.Module:
    default = "sum_fc" if has_class_token else "word_tokens"
    fusion = config.fusion or default
    with_cls = has_class_token and fusion != "word_tokens"
    return WORD_HEADS[fusion](
        WORD_POOLINGS[config.pooling].from_config(
            dim, config, functools.partial(build_norm, config)
        ),
        num_classes,
        cls_dim=dim if with_cls else None,
        extra_dim=dim if fusion == "concat" else 0,
        dropout=dropout,
        mask_padding=config.mask_padding,
    )


def _require_possible_without_class_token(config: HeadConfig) -> None:
    if config.pooling in CLASS_TOKEN_POOLINGS:
        raise ValueError(
            f"pooling {config.pooling!r} needs a class token and there is none; use one of "
            f"{sorted(WORD_POOLINGS)}"
        )
    if config.fusion not in (None, *FUSIONS_WITHOUT_CLASS_TOKEN):
        raise ValueError(
            f"fusion {config.fusion!r} needs a class token and there is none; use None or one of "
            f"{list(FUSIONS_WITHOUT_CLASS_TOKEN)}"
        )


def initialise(head: nn.Module, std: float) -> None:
    """Linear N(0, std) with zero bias, convolutions kaiming-normal (fan_out, relu).

    Batch and layer norms keep 1 and 0; the start vector of svPN keeps N(0, 1).

    Source: specs A.8 and B.1.
    """
    for module in head.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, mean=0.0, std=std)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
