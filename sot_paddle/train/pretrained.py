"""Where weights come from: folders and files of any origin, converted on the fly.

Nothing is written beside them.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

from sot_paddle.backbones.families import TextBackbone
from sot_paddle.checkpoint import FORMAT, metadata_json, shapes_of, unpack_files
from sot_paddle.config import (
    PLAIN,
    PRETRAINING,
    SECOND_ORDER,
    EncoderConfig,
    build_record,
)
from sot_paddle.convert.engine.known_models import (
    CLASS_SCORES,
    HEAD_SIGNATURES,
    PADDLENLP,
    WORD_SCORES,
)
from sot_paddle.convert.engine.registry import (
    TABLES,
    fits,
    layouts_of,
    recognise,
    table_of,
)
from sot_paddle.convert.formats.source import Source, open_source, read_as_paddle, with_settings
from sot_paddle.data.subword import SubwordTokenizer
from sot_paddle.data.tokenizers import FAMILIES, TokenizerFamily
from sot_paddle.reading import field_of, named_in_refusals, read_bytes, read_json
from sot_paddle.registry import TEXT_BACKBONES, create_model, list_models, text_backbone, text_name
from sot_paddle.tasks.text_options import CheckpointOptions
from sot_paddle.train.run_folder import CONFIG
from sot_paddle.weights import fill

_UNTOLD = ("num_attention_heads", "hidden_act", "layer_norm_eps")
"""Options that change every score and that no tensor tells."""

_HEAD_WIDTHS = {
    "q_dim": ("head.pooling.q_proj.weight", "head.pooling.proj.weight"),
    "k_dim": ("head.pooling.k_proj.weight",),
}
"""Option of a second-order head -> the weights of which it is the number of outputs."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pretrained:
    """A language model to start from."""

    origin: str
    backbone: TextBackbone  # what is known about its architecture
    config: Mapping[str, Any]  # of config.json, at least the sizes that are not the preset's
    arrays: Mapping[str, np.ndarray]  # under this project's names, empty for random weights
    vocabulary: Mapping[str, bytes]
    # options of the head that it holds, as far as anything tells; {} for none
    head: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""  # a name of the checkpoint; one that begins with a preset's asks for it

    @property
    def preset(self) -> str:
        """The registry name of the language model with its own classifier."""
        return self.backbone.preset_for(self.backbone.read_config(self.config), hint=self.hint)

    @property
    def encoder(self) -> EncoderConfig:
        """The encoder's options: those of its preset, then what the checkpoint says."""
        stated = self.backbone.read_config(self.config)
        options = self.backbone.defaults(self.preset) | stated
        return build_record(self.backbone.options, options, where="config.json")

    @property
    def num_classes(self) -> int | None:
        """Outputs of the classifier that the checkpoint holds, None where it holds none."""
        names = (CLASS_SCORES[0], WORD_SCORES[0])
        return next((self.arrays[n].shape[-1] for n in names if n in self.arrays), None)

    def tokenizer(self, max_length: int, **options: Any) -> SubwordTokenizer:
        """What its vocabulary makes of texts; the options are of `TokenizerFamily.build`."""
        family = FAMILIES[self.backbone.tokenizer]
        return family.from_files(self.vocabulary, max_length=max_length, **options)

    def build(self, num_classes: int, options: Mapping[str, Any]) -> nn.Layer:
        """Build the model with fresh weights; :func:`load` fills them in.

        Args:
            options: flat, of the head with its ``pooling``, and of the encoder over the
                checkpoint's.
        """
        stated = self.backbone.read_config(self.config) | dict(options)
        untold = [name for name in _UNTOLD if name not in stated]
        if self.arrays and untold:
            names = ", ".join(untold)
            _LOG.warning(f"{self.origin} does not state {names}: those of {self.preset} are taken")
        return create_model(text_name(self.preset, options["pooling"]), num_classes, **stated)


def find(config: CheckpointOptions, *, pretraining_heads: bool = False) -> Pretrained:
    """Locate and read the checkpoint that the options name.

    Args:
        pretraining_heads: read those of a checkpoint of PyTorch, too, which classifiers leave out.

    Returns:
        The encoder; its arrays may be read lazily from the file.
    """
    name, backbone = config.model_name_or_path, TEXT_BACKBONES[config.model_type]
    family = FAMILIES[backbone.tokenizer]
    place = locate(name, config.cache_dir)
    if place is not None:
        source, pooling = open_source(place), config.resolved_pooling
        checkpoint = read(place, source, backbone, pooling, pretraining_heads=pretraining_heads)
    elif name in _built(backbone):
        checkpoint = Pretrained(f"{name} (random weights)", backbone, {}, {}, {})
    else:
        under = f", under {config.cache_dir}" if config.cache_dir else ""
        raise ValueError(
            f"model {name!r} is not on this machine (looked for it as a path{under}, in the hub "
            "cache) and nothing is downloaded: fetch config.json, the vocabulary and "
            "model.safetensors (or pytorch_model.bin) of that model into a folder and give the "
            f"folder as --model_name_or_path; for random weights of --model_type "
            f"{config.model_type} give one of {', '.join(_built(backbone))}"
        )
    vocabulary, holder, sizes = checkpoint.vocabulary, checkpoint.origin, checkpoint.config
    if config.tokenizer_name:
        vocabulary = _vocabulary(family, Path(config.tokenizer_name))
        holder = f"--tokenizer_name {config.tokenizer_name}"
    if not family.whole(vocabulary):
        raise ValueError(f"{holder} has no {family.said}: give it with --tokenizer_name")
    if backbone.tokenizer == "wordpiece":
        vocabulary = with_settings(vocabulary, config.tokenizer_settings)
    if config.config_name:
        sizes = _read_config(Path(config.config_name))
    checkpoint = dataclasses.replace(checkpoint, hint=name, vocabulary=vocabulary, config=sizes)
    if config.length is not None:
        limit = backbone.position_limit(checkpoint.encoder)
        require_positions(limit, config.length, checkpoint.origin, "lower --max_seq_length")
    return checkpoint


def sources(config: CheckpointOptions) -> dict[str, Path | None]:
    """What is read from the disk for the model, by flag; None for a flag that is not given."""
    names = {"--config_name": config.config_name, "--tokenizer_name": config.tokenizer_name}
    return {
        "--model_name_or_path": locate(config.model_name_or_path, config.cache_dir),
        **{flag: Path(name) if name else None for flag, name in names.items()},
    }


def require_positions(limit: int, tokens: int, origin: str, advice: str) -> None:
    """Refuse rows with more tokens than a model has positions for."""
    if tokens > limit:
        raise ValueError(f"{origin} has positions for {limit} tokens, asked for {tokens}: {advice}")


def require_embeddings(entries: int, sizes: EncoderConfig) -> None:
    """Refuse a vocabulary with more entries than a model has embeddings."""
    if entries > sizes.vocab_size:
        raise ValueError(
            f"the vocabulary has {entries} entries, the model's embedding {sizes.vocab_size}: "
            "they do not belong together"
        )


def load(model: nn.Layer, pretrained: Pretrained) -> list[str]:
    """Copy the checkpoint's tensors into a model; head tensors that do not fit stay fresh.

    Returns:
        Names of the model's tensors that stay fresh.
    """
    state, arrays = model.state_dict(), pretrained.arrays
    if not arrays:
        return sorted(state)
    heads = [name for name in state if name.startswith("head.")]
    shapes = shapes_of({name: arrays[name] for name in heads if name in arrays})
    fresh = [name for name in heads if shapes.get(name) != tuple(state[name].shape)]
    fill(model, arrays, pretrained.origin, fresh)
    return fresh


def locate(name: str, cache_dir: str) -> Path | None:
    """An existing path for a path or a name: itself, the cache folder's, the hub cache's."""
    candidates = [Path(name).expanduser()]
    if cache_dir:
        candidates.append(Path(cache_dir) / name)
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(
        os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface"), "hub"
    )
    snapshots = Path(hub) / f"models--{name.strip('/').replace('/', '--')}" / "snapshots"
    if not name.startswith((".", "/", "~")) and snapshots.is_dir():
        candidates += sorted(snapshots.iterdir())
    return next((path for path in candidates if path.exists()), None)


def _built(backbone: TextBackbone) -> list[str]:
    """Registry names of a language model."""
    return [name for name in list_models("text") if text_backbone(name) is backbone]


def read(
    place: Path,
    source: Source,
    backbone: TextBackbone | None = None,
    pooling: str | None = None,
    *,
    pretraining_heads: bool = False,
) -> Pretrained:
    """Read a language model's checkpoint, with the config.json and the vocabulary beside it.

    Args:
        backbone: the architecture that is expected, None for the checkpoint's own.
        pooling: of the head of the model to be filled, or ``"plain"``; None for the checkpoint's.
    """
    for note in source.notes:
        _LOG.warning("%s", note)
    folder = source.path.parent
    config = _read_config(folder) if _config_file(folder).exists() else {}
    is_converted, vocabulary = FORMAT in source.metadata, {}
    if is_converted:
        if text_backbone(source.metadata["model"]) is None:
            raise ValueError(f"{place} is of {source.metadata['model']}, which is no text model")
        with named_in_refusals(source.path):
            config |= metadata_json(source.metadata, "config")
            vocabulary = unpack_files(source.metadata.get("vocabulary", "{}"))
    elif backbone is not None:
        kind = field_of(config, "model_type", str, f"{place}: config.json", "")
        if kind not in ("", backbone.model_type, backbone.original_type):
            types = [name for name, other in TEXT_BACKBONES.items() if other.model_type == kind]
            meant = f": give --model_type {' or '.join(types)}" if types else ""
            expected = backbone.model_type
            raise ValueError(f"{place} is a {kind!r} checkpoint, expected {expected}{meant}")
    backbone = backbone or _architecture(source, config)
    vocabulary = vocabulary or _vocabulary(FAMILIES[backbone.tokenizer], folder)
    checkpoint = Pretrained(str(place), backbone, config, source.tensors, vocabulary)
    if is_converted:
        arrays = source.tensors
    elif source.path.suffix == ".pdparams" or source.metadata.get("format") == "np":
        is_plain = pooling in (None, PLAIN, backbone.plain)
        arrays = _named_as_here(source.tensors, backbone, config if is_plain else {})
    else:
        name = _model_to_fill(
            source, checkpoint.preset, {PLAIN: backbone.plain}.get(pooling, pooling)
        )
        arrays = read_as_paddle(source, name, pretraining_heads=pretraining_heads)
    return dataclasses.replace(
        checkpoint, arrays=arrays, head=_head_options(checkpoint, source, arrays)
    )


def _architecture(source: Source, config: Mapping[str, Any]) -> TextBackbone:
    """The language model that a checkpoint is of: by its own word, or its tensors' names."""
    recorded = source.metadata.get("model", "")
    stated = field_of(config, "sot_model", str, str(source.path), recorded)
    if stated:
        trained = text_backbone(stated)
        if trained is None:
            raise ValueError(f"{source.path}: 'sot_model' is {stated!r}, which is no text model")
        return trained
    table = table_of(source.shapes)
    for backbone in TEXT_BACKBONES.values():
        is_listed = table is not None and any(fits(table, name) for name in _built(backbone))
        has_prefix = any(name.startswith(f"{backbone.prefix}.") for name in source.tensors)
        of_type = config.get("model_type") in (backbone.model_type, backbone.original_type)
        if is_listed or (table is None and (has_prefix or of_type)):
            return backbone
    raise ValueError(
        f"{source.path} is no checkpoint of a known language model ({', '.join(TEXT_BACKBONES)}): "
        "one of images is converted first (tools/convert_weights.py)"
    )


def _model_to_fill(source: Source, preset: str, pooling: str | None) -> str:
    """The registry name of a model with the head that is wanted, or with the checkpoint's own."""
    if pooling is None:
        layout, _ = recognise(source.shapes, first=layouts_of(preset)[0])
        pools = any(name.startswith("head.pooling.") for name in source.tensors)
        if pools or (layout and layout not in layouts_of(preset)):
            pooling = SECOND_ORDER
    return text_name(preset, pooling) if pooling else preset


def _named_as_here(
    tensors: Mapping[str, np.ndarray], backbone: TextBackbone, config: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """paddlenlp's tensors under our names, which are its own but for the head's.

    Without a task's head they have no prefix. The classifier is taken where the configuration says
    that it is one of whole texts: that of tokens has the same names.
    """
    prefix, layout = f"{backbone.prefix}.", f"{backbone.prefix}_hf"
    bare = not any(name.startswith(prefix) for name in tensors)
    names = {f"{prefix}{name}" if bare else name: name for name in tensors}
    pooler = re.compile(rf"^{re.escape(prefix)}pooler\.")
    arrays = {pooler.sub("head.", ours): tensors[name] for ours, name in names.items()}
    of_texts = "ForSequenceClassification" in str(config.get("architectures"))
    rows = TABLES[layout][0].heads["pooler"] if of_texts and layout in PADDLENLP else ()
    return arrays | {row.destination: tensors[row.source] for row in rows if row.source in tensors}


def _head_options(
    checkpoint: Pretrained, source: Source, arrays: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Options of the head that a checkpoint holds: those that it states, else what tensors tell."""
    recorded = metadata_json(source.metadata, "head_config")
    stated = field_of(checkpoint.config, "sot_head", dict, checkpoint.origin, recorded)
    if stated.get("pooling", PRETRAINING) != PRETRAINING:
        return stated
    signatures = {**HEAD_SIGNATURES, "gap": WORD_SCORES, PLAIN: CLASS_SCORES}
    kinds = [kind for kind, names in signatures.items() if names[0] in arrays]
    if FORMAT in source.metadata:
        kinds = [source.metadata["head"]]
    if not kinds or kinds[0] == PRETRAINING:
        return {}
    widths = {
        option: arrays[name].shape[-1]
        for option, names in _HEAD_WIDTHS.items()
        for name in names
        if name in arrays
    }
    plain = checkpoint.backbone.plain
    return {"pooling": plain if kinds[0] in ("pooler", PLAIN) else kinds[0], **widths}


def _config_file(folder: Path) -> Path:
    """The file with the sizes as transformers, a model's authors, or paddlenlp 2 name it."""
    authors = {f"{backbone.model_type}_config.json": None for backbone in TEXT_BACKBONES.values()}
    names = (CONFIG, *authors, "model_config.json")
    there = (folder / name for name in names if (folder / name).exists())
    return next(there, folder / CONFIG)


def _read_config(place: Path) -> dict[str, Any]:
    return _unnested(read_json(_config_file(place) if place.is_dir() else place))


def _unnested(content: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes beside each other; paddlenlp 2 keeps the encoder's in the arguments of the model."""
    inner = content.get("init_args", ())
    sizes: dict[str, Any] = {}
    for part in inner if isinstance(inner, list) else ():
        sizes |= _unnested(part) if isinstance(part, dict) else {}
    return sizes | {key: value for key, value in content.items() if not key.startswith("init_")}


def _vocabulary(family: TokenizerFamily, place: Path) -> dict[str, bytes]:
    """A tokenizer's files in a folder, by name; a file is the first of them."""
    if place.is_file():
        return {family.files[0]: read_bytes(place)}
    return {name: read_bytes(place / name) for name in family.files if (place / name).exists()}
