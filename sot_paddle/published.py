"""The head and the token embedding under the names and dictionaries of the original release.

For use in a model of your own, as the original's README shows. The dictionaries are read, never
changed. A key that the original knows and the chosen type does not use is ignored, as there; a key
that nobody knows is refused.
Source: A.5-A.7. Shape legend: B samples, N word tokens, C channels, K classes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import paddle
from paddle import nn

from sot_paddle.backbones.token_embed import STEM_DIM, build_token_embed
from sot_paddle.config import HeadConfig, build_record, near_names, require_one_of
from sot_paddle.features import Features
from sot_paddle.heads import build_head
from sot_paddle.vision_config import ViTConfig

Options = Mapping[str, Any]

_POOLINGS = {name: name.lower() for name in ("MGCrP", "GAP", "GCP", "fc", "None")}
_NORMS = {name: name.lower() for name in ("svPN", "sqrt_d", "sqrt_t", "ePN", "LN", "None")}
_FUSIONS = ("sum_fc", "concat", "aggre_all", "sum_loss")
_TOKEN_TYPES = {
    "DenseNet": "densenet",
    "ResNet": "resnet",
    "Inception": "inception",
    "Non-local": "nonlocal",
    "Naive_linear": "linear",
}
_SVPN_OPTIONS = {"alpha": "alpha", "iterNum": "num_iter", "svNum": "num_sv", "init_weight": "start"}
_MGCRP_DEFAULTS = {"num_heads": 8, "wr_dim": 16, "qkv_bias": False}


def _refuse_unknown(what: str, options: object, allowed: Collection[str]) -> None:
    if not isinstance(options, Mapping):
        raise ValueError(f"{what} must be a dict, got {options!r}")
    for key in options:
        if key not in allowed:
            raise ValueError(f"unknown key {key!r} in {what}; {near_names(str(key), allowed)}")


def _chosen_type(
    what: str, options: Options, allowed: Collection[str], names: Mapping[str, str]
) -> str:
    """Our name of the ``type`` that a dictionary must have; None counts as ``"None"``."""
    _refuse_unknown(what, options, allowed)
    published = str(options.get("type", ""))
    require_one_of(f"type of {what}", published, names)
    return names[published]


def _normalization(options: Options | None, wr_dim: int) -> dict[str, Any]:
    """Head options of the ``normalization`` dictionary of MGCrP."""
    options = {"type": None} if options is None else options
    allowed = ("type", "input_dim", "vec", "regular", *_SVPN_OPTIONS)
    normalization = _chosen_type("normalization", options, allowed, _NORMS)
    if normalization != "svpn":
        return {"normalization": normalization}
    if options.get("input_dim", wr_dim) != wr_dim:
        raise ValueError(
            f"input_dim of the normalization must be wr_dim {wr_dim}, got {options['input_dim']}"
        )
    regular, vec = options.get("regular"), str(options.get("vec", "full"))
    if not isinstance(regular, nn.Dropout | None):
        raise ValueError(f"regular must be None or a paddle.nn.Dropout, got {regular!r}")
    return {
        "normalization": normalization,
        "vec": "full" if vec == "None" else vec,  # the head flattens a matrix that stays one
        "head_dropout": 0.0 if regular is None else float(regular.p),
        **{name: options[key] for key, name in _SVPN_OPTIONS.items() if key in options},
    }


def _pooling_options(pooling: str, args: Options) -> dict[str, Any]:
    """Head options of the ``args`` dictionary; the original's MGCrP takes no other's keys."""
    of_mgcrp, of_gcp = ("dim", *_MGCRP_DEFAULTS, "normalization"), ("dim", "num_heads", "qkv_dim")
    allowed = of_mgcrp if pooling == "mgcrp" else {*of_mgcrp, *of_gcp}
    _refuse_unknown(f"args of type {pooling!r}", args, allowed)
    if pooling == "mgcrp":
        options = {name: args.get(name, default) for name, default in _MGCRP_DEFAULTS.items()}
        heads = options.pop("num_heads")
        norm = _normalization(args.get("normalization"), options["wr_dim"])
        return {"head_num_heads": heads, **options, **norm}
    if pooling != "gcp":
        return {}
    if not args.keys() >= set(of_gcp[1:]):
        raise ValueError(f"args of type 'gcp' needs num_heads and qkv_dim, got {list(args)}")
    return {"head_num_heads": args["num_heads"], "qkv_dim": args["qkv_dim"]}


class Classifier(nn.Layer):
    """Classification head for a class token and word tokens, from the original's dictionary.

    Args:
        representationConfig: keys ``type`` (``MGCrP``, ``GAP``, ``GCP``, ``fc``, None),
            ``fusion_type`` (``sum_fc``, ``concat``, ``aggre_all``, ``sum_loss``; any value, None
            included, for the types ``fc`` and None, which do not use it) and ``args`` (for MGCrP:
            ``dim``, ``num_heads``, ``wr_dim``, ``qkv_bias``, ``normalization``; for GCP: ``dim``,
            ``num_heads``, ``qkv_dim``; for the others ``dim``).
        num_classes: K.
        input_dim: channels C; needed only where ``args`` has no ``dim``, else 384.

    Raises:
        ValueError: an unknown key or value (the near names are listed), or a combination that
            cannot work.
    """

    words_only = False

    def __init__(
        self,
        representationConfig: Options,
        num_classes: int = 1000,
        input_dim: int | None = None,
    ) -> None:
        super().__init__()
        what, allowed = "the classifier's dict", ("type", "fusion_type", "args")
        pooling = _chosen_type(what, representationConfig, allowed, _POOLINGS)
        args = representationConfig.get("args") or {}
        options = {"pooling": pooling, **_pooling_options(pooling, args)}
        dim = args.get("dim", 384 if input_dim is None else input_dim)
        if input_dim is not None and dim != input_dim:
            raise ValueError(f"args['dim'] {dim} and input_dim {input_dim} must be equal")
        if pooling not in ("fc", "none") and not self.words_only:
            options["fusion"] = representationConfig.get("fusion_type", "sum_fc")
            require_one_of("fusion_type", options["fusion"], _FUSIONS)
        self.head = build_head(
            build_record(HeadConfig, options, where=what),
            dim=dim,
            num_classes=num_classes,
            has_class_token=not self.words_only,
        )

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
        if tokens.ndim != 3 or tokens.shape[1] < 2:
            expected = "(B, 1 + N, C) with the class token first"
            raise ValueError(f"tokens must be {expected}, got shape {list(tokens.shape)}")
        return self.head(Features(tokens[:, 0], tokens[:, 1:]))


class OnlyVisualTokensClassifier(Classifier):
    """Classification head for word tokens alone; arguments and refusals as of Classifier.

    The type is ``MGCrP``, ``GAP`` or ``GCP``; ``fusion_type`` is not used and may be anything.
    """

    words_only = True

    def forward(self, tokens: paddle.Tensor) -> paddle.Tensor:
        """Classify tokens (B, N, C); returns logits (B, K)."""
        return self.head(Features(None, tokens))


class TokenEmbed(nn.Layer):
    """Token embedding from the original's dictionary.

    Args:
        visualTokenConfig: keys ``type`` (``DenseNet``, ``ResNet``, ``Inception``, ``Non-local``,
            ``Naive_linear``), ``token_dim`` (the README's ``embedding_dim`` is accepted),
            ``large_output`` (no effect for ``Non-local`` and ``Naive_linear``, as in the
            original), and ``dense_norm`` (ours: ``"none"`` as published, or ``"bn"``).
        img_size: height and width of the images in pixels.
        in_chans: channels of the images.
        embed_dim: channels C of the tokens.

    Attributes:
        num_patches: tokens N that it really gives (the original's says 196 or 3136, whatever
            the size).

    Raises:
        ValueError: an unknown key or value (the near names are listed), or a combination that
            cannot work.
    """

    def __init__(
        self,
        visualTokenConfig: Options,
        img_size: int = 224,
        in_chans: int = 3,
        embed_dim: int = 384,
    ) -> None:
        super().__init__()
        what, options = "the token embedding's dict", {"type": "DenseNet", **visualTokenConfig}
        allowed = ("type", "token_dim", "embedding_dim", "large_output", "dense_norm")
        kind = _chosen_type(what, options, allowed, _TOKEN_TYPES)
        if "token_dim" in options and "embedding_dim" in options:
            raise ValueError("token_dim and embedding_dim are one option: give one of them")
        values = {
            "img_size": img_size,
            "in_chans": in_chans,
            "embed_dim": embed_dim,
            "token_type": kind,
            "token_dim": options.get("token_dim", options.get("embedding_dim", STEM_DIM)),
            "num_heads": 1,  # of blocks, which are not built
            **{name: options[name] for name in ("large_output", "dense_norm") if name in options},
        }
        if kind in ("nonlocal", "linear"):
            values.pop("large_output", None)
        self.tokens = build_token_embed(build_record(ViTConfig, values, where=what))
        self.num_patches = self.tokens.num_tokens

    def forward(self, images: paddle.Tensor) -> paddle.Tensor:
        """Map images (B, in_chans, img_size, img_size) to tokens (B, N, C), row-major."""
        return self.tokens(images)
