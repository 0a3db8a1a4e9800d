"""The head and the token embedding under the names and dictionaries of the original release.

For use in a model of your own, as the original's README shows. The dictionaries are read, never
changed. A key that the original knows and the chosen type does not use is ignored, as there, and
said in one log line; a key that nobody knows is refused.
Source: A.5-A.7. Shape legend: B samples, N word tokens, C channels, K classes.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.token_embed import STEM_DIM, build_token_embed
from sot_paddle.config import HeadConfig, build_record, near_names, require_one_of
from sot_paddle.features import Features
from sot_paddle.heads import build_head
from sot_paddle.vision_config import ViTConfig

_LOG = logging.getLogger(__name__)

Options = Mapping[str, Any]

_INPUT_DIM, _NUM_CLASSES = 384, 1000
_POOLINGS = {name: name.lower() for name in ("MGCrP", "GAP", "GCP", "fc", "None")}
_NORMS = {name: name.lower() for name in ("svPN", "sqrt_d", "sqrt_t", "ePN", "LN", "None")}
_VECTORS = {"full": "full", "triu": "triu", "None": "full"}
"""``vec`` of svPN; a matrix that stays one is flattened by the head all the same."""

_FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss")
_TOKEN_TYPES = {
    "DenseNet": "densenet",
    "ResNet": "resnet",
    "Inception": "inception",
    "Non-local": "nonlocal",
    "Naive_linear": "linear",
}
_SVPN_OPTIONS = {"alpha": "alpha", "iterNum": "num_iter", "svNum": "num_sv", "init_weight": "start"}


@functools.cache
def _say(message: str) -> None:
    """Log a line the first time only."""
    _LOG.warning("%s", message)


def _ignore(what: str, keys: Iterable[str], used: Sequence[str]) -> None:
    """Say which keys of a dictionary have no effect."""
    unused = [key for key in keys if key not in used]
    if unused:
        _say(f"{what} does not use {', '.join(unused)}: ignored")


def _known(what: str, options: object, allowed: Sequence[str]) -> dict[str, Any]:
    """A copy of a dictionary whose keys are all known."""
    if not isinstance(options, Mapping):
        raise ValueError(f"{what} must be a dict, got {options!r}")
    for key in options:
        if key not in allowed:
            raise ValueError(f"unknown key {key!r} in {what}; {near_names(str(key), allowed)}")
    return dict(options)


def _named(what: str, value: object, names: Mapping[str, str]) -> str:
    """Our name of a published one; None counts as ``"None"``."""
    key = str(value)
    require_one_of(what, key, names)
    return names[key]


def _typed(what: str, options: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Our name of the ``type`` of a dictionary, which must have one (it may be None)."""
    if "type" not in options:
        raise ValueError(f"{what} needs a 'type', one of {', '.join(names)}")
    return _named(f"type of {what}", options["type"], names)


def _one_config(what: str, keyword: str, config: object, alias: object) -> Options:
    """The dictionary, given by position or under the original's keyword."""
    if (config is None) == (alias is None):
        raise ValueError(f"{what} needs one dict, as its first argument or as {keyword}=")
    return alias if config is None else config


def _normalization(options: object, wr_dim: int) -> dict[str, Any]:
    """Head options of the ``normalization`` dictionary of MGCrP."""
    if options is None:
        return {"normalization": "none"}
    allowed = ("type", "input_dim", "vec", "regular", *_SVPN_OPTIONS)
    settings = _known("normalization", options, allowed)
    head_options: dict[str, Any] = {"normalization": _typed("normalization", settings, _NORMS)}
    if head_options["normalization"] != "svpn":
        _ignore(f"normalization type {settings['type']!r}", settings, ("type",))
        return head_options
    head_options["vec"] = _named("vec", settings.get("vec", "full"), _VECTORS)
    if settings.get("input_dim", wr_dim) != wr_dim:
        raise ValueError(
            f"input_dim of the normalization must be wr_dim {wr_dim}, got {settings['input_dim']}"
        )
    for key, name in _SVPN_OPTIONS.items():
        if key in settings:
            head_options[name] = settings[key]
    regular = settings.get("regular")
    if not isinstance(regular, nn.Dropout | None):
        raise ValueError(f"regular must be None or a paddle.nn.Dropout, got {regular!r}")
    head_options["head_dropout"] = 0.0 if regular is None else float(regular.p)
    return head_options


def _mgcrp(args: dict[str, Any]) -> dict[str, Any]:
    wr_dim = args.get("wr_dim", 16)
    return {
        "head_num_heads": args.get("num_heads", 8),
        "wr_dim": wr_dim,
        "qkv_bias": args.get("qkv_bias", False),
        **_normalization(args.get("normalization"), wr_dim),
    }


def _gcp(args: dict[str, Any]) -> dict[str, Any]:
    for key in ("num_heads", "qkv_dim"):
        if key not in args:
            raise ValueError(
                f"args of type 'GCP' needs {key!r}, got {', '.join(args) or 'nothing'}"
            )
    return {"head_num_heads": args["num_heads"], "qkv_dim": args["qkv_dim"]}


_ARGUMENTS = {
    "mgcrp": (("dim", "num_heads", "wr_dim", "qkv_bias", "normalization"), _mgcrp),
    "gcp": (("dim", "num_heads", "qkv_dim"), _gcp),
}
"""Keys of ``args`` for each pooling that has any, and how they become head options."""

_ALL_ARGUMENTS = tuple(dict.fromkeys(key for keys, _ in _ARGUMENTS.values() for key in keys))
"""What the original knows; MGCrP takes its own alone, the other types read what they use."""


def _head(
    config: Options, num_classes: int, input_dim: int | None, *, words_only: bool
) -> nn.Layer:
    settings = _known("the classifier's dict", config, ("type", "fusion_type", "args"))
    pooling = _typed("the classifier's dict", settings, _POOLINGS)
    keys, translate = _ARGUMENTS.get(pooling, (("dim",), lambda args: {}))
    what = f"args of type {settings['type']!r}"
    args = _known(what, settings.get("args") or {}, keys if pooling == "mgcrp" else _ALL_ARGUMENTS)
    _ignore(what, args, keys)
    dim = args.get("dim", input_dim)
    if input_dim is not None and dim != input_dim:
        raise ValueError(f"args['dim'] {dim} and input_dim {input_dim} must be equal")
    fusion = settings.get("fusion_type", "sum_fc")
    uses_fusion = pooling not in ("fc", "none") and not words_only
    if uses_fusion:
        require_one_of("fusion_type", fusion, _FUSIONS)
    options = {"pooling": pooling, "fusion": fusion if uses_fusion else None, **translate(args)}
    return build_head(
        build_record(HeadConfig, options, where="the classifier's dict"),
        dim=_INPUT_DIM if dim is None else dim,
        num_classes=num_classes,
        has_class_token=not words_only,
    )


def _check_tokens(tokens: paddle.Tensor, least: int, what: str) -> None:
    if tokens.ndim != 3 or tokens.shape[1] < least:
        raise ValueError(f"tokens must be {what}, got shape {list(tokens.shape)}")


class _FromDictionary(nn.Layer):
    """A head that the original's dictionary describes."""

    words_only = False

    def __init__(
        self,
        config: Options | None = None,
        num_classes: int = _NUM_CLASSES,
        input_dim: int | None = None,
        *,
        representationConfig: Options | None = None,
    ) -> None:
        super().__init__()
        what, keyword = type(self).__name__, "representationConfig"
        config = _one_config(what, keyword, config, representationConfig)
        self.head = _head(config, num_classes, input_dim, words_only=self.words_only)


class Classifier(_FromDictionary):
    """Classification head for a class token and word tokens, from the original's dictionary.

    Args:
        config: keys ``type`` (``MGCrP``, ``GAP``, ``GCP``, ``fc``, None), ``fusion_type``
            (``sum_fc``, ``concat``, ``aggre_all``, ``sum_loss``; any value, None included, for
            the types ``fc`` and None, which do not use it) and ``args`` (for MGCrP: ``dim``,
            ``num_heads``, ``wr_dim``, ``qkv_bias``, ``normalization``; for GCP: ``dim``,
            ``num_heads``, ``qkv_dim``; for the others ``dim``).
        num_classes: K.
        input_dim: channels C; needed only where ``args`` has no ``dim``, else 384.
        representationConfig: the original's keyword for ``config``.

    Raises:
        ValueError: an unknown key or value (the near names are listed), or a combination that
            cannot work.
    """

    def forward(self, tokens: paddle.Tensor):
        """Classify tokens.

        Args:
            tokens: (B, 1 + N, C), the class token first.

        Returns:
            Logits (B, K); with fusion ``sum_loss`` in training mode the pair (class-token
            logits, word logits).

        Raises:
            ValueError: not such a tensor.
        """
        _check_tokens(tokens, 2, "(B, 1 + N, C) with the class token first")
        return self.head(Features(tokens[:, 0], tokens[:, 1:]))


class OnlyVisualTokensClassifier(_FromDictionary):
    """Classification head for word tokens alone; arguments and refusals as of Classifier.

    The type is ``MGCrP``, ``GAP`` or ``GCP``; ``fusion_type`` is not used and may be anything.
    """

    words_only = True

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        """Classify tokens (B, N, C); returns logits (B, K)."""
        _check_tokens(tokens, 1, "(B, N, C)")
        return self.head(Features(None, tokens))


class TokenEmbed(nn.Layer):
    """Token embedding from the original's dictionary.

    Args:
        config: keys ``type`` (``DenseNet``, ``ResNet``, ``Inception``, ``Non-local``,
            ``Naive_linear``), ``token_dim`` (the README's ``embedding_dim`` is accepted),
            ``large_output`` (no effect for ``Non-local`` and ``Naive_linear``, as in the
            original), and ``dense_norm`` (ours: ``"none"`` as published, or ``"bn"``).
        img_size: height and width of the images in pixels.
        in_chans: channels of the images.
        embed_dim: channels C of the tokens.
        visualTokenConfig: the original's keyword for ``config``.

    Attributes:
        num_patches: tokens N that it really gives (the original's says 196 or 3136, whatever
            the size).

    Raises:
        ValueError: an unknown key or value (the near names are listed), or a combination that
            cannot work.
    """

    def __init__(
        self,
        config: Options | None = None,
        img_size: int = 224,
        in_chans: int = 3,
        embed_dim: int = _INPUT_DIM,
        *,
        visualTokenConfig: Options | None = None,
    ) -> None:
        super().__init__()
        config = _one_config("TokenEmbed", "visualTokenConfig", config, visualTokenConfig)
        allowed = ("type", "token_dim", "embedding_dim", "large_output", "dense_norm")
        settings = _known("the token embedding's dict", config, allowed)
        if "token_dim" in settings and "embedding_dim" in settings:
            raise ValueError("token_dim and embedding_dim are one option: give one of them")
        published = settings.get("type", "DenseNet")
        kind = _named("type of the token embedding", published, _TOKEN_TYPES)
        large_output = settings.get("large_output", False)
        if large_output and kind in ("nonlocal", "linear"):
            _say(f"token embedding {published!r} does not use large_output: ignored")
            large_output = False
        options = {
            "img_size": img_size,
            "in_chans": in_chans,
            "embed_dim": embed_dim,
            "token_type": kind,
            "token_dim": settings.get("token_dim", settings.get("embedding_dim", STEM_DIM)),
            "large_output": large_output,
            "dense_norm": settings.get("dense_norm", "none"),
            "num_heads": 1,  # of blocks, which are not built
        }
        record = build_record(ViTConfig, options, where="the token embedding's dict")
        self.tokens = build_token_embed(record)
        self.num_patches = self.tokens.num_tokens

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Map images (B, in_chans, img_size, img_size) to tokens (B, N, C), row-major."""
        return self.tokens(images)
