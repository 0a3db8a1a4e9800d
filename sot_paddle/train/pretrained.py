"""Where the encoder comes from: a local folder or file, converted on the fly, never written to."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from paddle import nn

from sot_paddle.backbones.families import TextBackbone
from sot_paddle.checkpoint import (
    FORMAT,
    SUFFIXES,
    metadata_json,
    read_tensors,
    refuse_tensorflow,
    unpack_files,
)
from sot_paddle.config import EncoderConfig
from sot_paddle.convert.formats.checkpoint_reading import read_as_paddle
from sot_paddle.data.tokenizers import FAMILIES, TokenizerFamily
from sot_paddle.reading import field_of, named_in_refusals, read_bytes, read_object
from sot_paddle.registry import TEXT_BACKBONES, create_model, list_models, text_backbone, text_name
from sot_paddle.tasks.text_options import CheckpointOptions
from sot_paddle.weights import fill_tensor

_UNTOLD = ("num_attention_heads", "hidden_act", "layer_norm_eps")
"""Options that change every score and that no tensor tells."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pretrained:
    """An encoder to start from.

    Attributes:
        origin: where it was found, for messages.
        config: the content of config.json, at least the sizes that are not the preset's.
        arrays: tensors under this project's names, empty for random weights.
        vocabulary: tokenizer files by name.
    """

    origin: str
    config: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    vocabulary: Mapping[str, bytes]


def find(config: CheckpointOptions, *, pretraining_heads: bool = False) -> Pretrained:
    """Locate and read the checkpoint that the options name.

    Args:
        config: ``model_name_or_path``, ``config_name``, ``tokenizer_name``, ``cache_dir``.
        pretraining_heads: read those of a checkpoint of PyTorch, too, which classifiers leave out.

    Returns:
        The encoder; its arrays may be read lazily from the file.
    """
    name = config.model_name_or_path
    place = _locate(name, config.cache_dir)
    if place is None:
        if name not in _built(config):
            raise ValueError(_not_local(config))
        if not config.tokenizer_name:
            raise ValueError(
                f"{name} has no vocabulary: give --tokenizer_name ({_family(config).said})"
            )
        found = Pretrained(f"{name} (random weights)", {}, {}, {})
    else:
        found = _read(place, config, pretraining_heads=pretraining_heads)
    if config.config_name:
        found = dataclasses.replace(found, config=_read_config(config, Path(config.config_name)))
    if config.tokenizer_name:
        source = Path(config.tokenizer_name)
        found = dataclasses.replace(found, vocabulary=_vocabulary(config, source))
    stated = _backbone(config).read_config(found.config)
    untold = [key for key in _UNTOLD if key not in stated]
    if found.arrays and untold:
        _LOG.warning(
            "%s does not state %s: those of %s are taken",
            *(found.origin, ", ".join(untold), _preset(config, found.config)),
        )
    family = _family(config)
    if not family.whole(found.vocabulary):
        raise ValueError(f"{found.origin} has no {family.said}: give it with --tokenizer_name")
    if config.length is not None:
        limit = _backbone(config).position_limit(encoder_of(config, found))
        require_positions(limit, config.length, found.origin, "lower --max_seq_length")
    return found


def sources(config: CheckpointOptions) -> dict[str, Path | None]:
    """What is read from the disk for the model, by flag; None for a flag that is not given."""
    names = {"--config_name": config.config_name, "--tokenizer_name": config.tokenizer_name}
    return {
        "--model_name_or_path": _locate(config.model_name_or_path, config.cache_dir),
        **{flag: Path(name) if name else None for flag, name in names.items()},
    }


def registry_name(config: CheckpointOptions, sizes: Mapping[str, Any]) -> str:
    """The registry name of the model that the options and the checkpoint's sizes describe."""
    return text_name(_preset(config, sizes), config.resolved_pooling)


def encoder_of(config: CheckpointOptions, pretrained: Pretrained) -> EncoderConfig:
    """The encoder's options: those of its preset, then what the checkpoint says."""
    backbone = _backbone(config)
    preset = backbone.defaults(_preset(config, pretrained.config))
    return backbone.options(**{**preset, **backbone.read_config(pretrained.config)})


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


def _backbone(config: CheckpointOptions) -> TextBackbone:
    return TEXT_BACKBONES[config.model_type]


def _built(config: CheckpointOptions) -> list[str]:
    """Registry names of the language models that ``model_type`` means."""
    return [name for name in list_models("text") if text_backbone(name) is _backbone(config)]


def _family(config: CheckpointOptions) -> TokenizerFamily:
    return FAMILIES[_backbone(config).tokenizer]


def _preset(config: CheckpointOptions, sizes: Mapping[str, Any]) -> str:
    backbone = _backbone(config)
    return backbone.preset_for(backbone.read_config(sizes), hint=config.model_name_or_path)


def build(config: CheckpointOptions, pretrained: Pretrained, num_classes: int) -> nn.Layer:
    """Build the model with fresh weights; :func:`load` fills them in."""
    sizes = _backbone(config).read_config(pretrained.config)
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        if getattr(config, key) is not None:
            sizes[key] = getattr(config, key)
    sizes["freeze_encoder"] = config.freeze_encoder
    name = registry_name(config, pretrained.config)
    if config.model_name_or_path in _built(config) and not pretrained.arrays:
        name = config.model_name_or_path
    return create_model(name, num_classes, **sizes, **config.head_options)


def check_trained_head(model: nn.Layer, recorded: Mapping[str, Any], origin: str) -> None:
    """Refuse to use a trained head with other options than it was trained with.

    ``sum_fc`` and ``aggre_all``, or a masked and an unmasked head, have tensors of equal names
    and shapes: without this check the weights would load and the scores be wrong.
    """
    head = json.loads(json.dumps(dataclasses.asdict(model.head_config)))  # lists for tuples
    for name in ("head_dropout", "on_zero"):  # they act in training only
        head.pop(name)
    trained = field_of({"sot_head": {}, **recorded}, "sot_head", dict, origin)
    differing = [name for name in head if name in trained and trained[name] != head[name]]
    if differing:
        shown = ", ".join(f"{name} {trained[name]} (now {head[name]})" for name in differing)
        raise ValueError(f"{origin} was trained with {shown}: give the same options of the head")


def load(model: nn.Layer, pretrained: Pretrained) -> tuple[int, list[str]]:
    """Copy the checkpoint's tensors into a model; head tensors that do not fit stay fresh.

    Returns:
        (number of tensors loaded, names of the model's tensors that stay fresh).
    """
    state = model.state_dict()
    if not pretrained.arrays:
        return 0, sorted(state)
    fresh, loaded = [], 0
    for name, tensor in state.items():
        array = pretrained.arrays.get(name)
        if array is not None and list(array.shape) == list(tensor.shape):
            fill_tensor(name, tensor, array, pretrained.origin)
            loaded += 1
        elif name.startswith("head."):
            fresh.append(name)
        else:
            shape = "is missing" if array is None else f"has shape {tuple(array.shape)}"
            raise ValueError(
                f"{pretrained.origin}: {name} {shape}, expected {tuple(tensor.shape)}: not a "
                "checkpoint of this architecture"
            )
    return loaded, fresh


def _locate(name: str, cache_dir: str) -> Path | None:
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


def _not_local(config: CheckpointOptions) -> str:
    under = f", under {config.cache_dir}" if config.cache_dir else ""
    return (
        f"model {config.model_name_or_path!r} is not on this machine (looked for it as a path"
        f"{under}, in the hub cache) and nothing is downloaded: fetch config.json, the vocabulary "
        "and model.safetensors (or pytorch_model.bin) of that model into a folder and give the "
        "folder as --model_name_or_path; for random "
        f"weights of --model_type {config.model_type} give one of {', '.join(_built(config))}"
    )


def _read(place: Path, config: CheckpointOptions, *, pretraining_heads: bool) -> Pretrained:
    refuse_tensorflow(place)
    file = _own_file(place)
    if file is not None:
        tensors, metadata = read_tensors(file)
        if metadata.get("format") == FORMAT:
            sizes = _config_beside(config, file)
            packed = metadata.get("vocabulary")
            beside = _vocabulary(config, file.parent, required=False)
            with named_in_refusals(file):
                sizes |= metadata_json(metadata, "config")
                words = unpack_files(packed) if packed else beside
            return Pretrained(str(place), sizes, tensors, words)
    folder = place if place.is_dir() else place.parent
    sizes = _config_beside(config, place)
    if not sizes and place.is_dir():
        inside = [place / name for name in ("best", "last") if (place / name).is_dir()]
        hint = f", such as {inside[0]}" if inside else ""
        raise ValueError(
            f"{place} holds neither config.json nor a converted checkpoint "
            f"({' or '.join(SUFFIXES)}): give a folder with a {config.model_type} checkpoint{hint}"
        )
    expected = _backbone(config).model_type
    kind = field_of({"model_type": expected, **sizes}, "model_type", str, f"{place}: config.json")
    if kind not in (expected, _backbone(config).original_type or expected):
        raise ValueError(f"{place} is a {kind!r} checkpoint, expected {expected}{_meant(kind)}")
    if file is not None and (file.suffix == ".pdparams" or metadata.get("format") == "np"):
        # of paddlenlp: our names, but the pooler's; without prefix where it has no task's head
        prefix = f"{_backbone(config).prefix}."
        bare = not any(name.startswith(prefix) for name in tensors)
        names = {f"{prefix}{name}" if bare else name: name for name in tensors}
        pooler = re.compile(rf"^{re.escape(prefix)}pooler\.")
        arrays = {pooler.sub("head.", ours): tensors[name] for ours, name in names.items()}
    else:
        name = registry_name(config, sizes)
        arrays = read_as_paddle(place, name, pretraining_heads=pretraining_heads)
    return Pretrained(str(place), sizes, arrays, _vocabulary(config, folder, required=False))


def _meant(kind: str) -> str:
    types = [name for name, known in TEXT_BACKBONES.items() if known.model_type == kind]
    return f": give --model_type {' or '.join(types)}" if types else ""


def _own_file(place: Path) -> Path | None:
    """The one tensor file of a place, None when it has none or several shards."""
    if place.is_file():
        return place if place.suffix in SUFFIXES else None
    preferred = place / "model.safetensors"
    if preferred.is_file():
        return preferred
    files = [path for suffix in SUFFIXES for path in sorted(place.glob(f"*{suffix}"))]
    return files[0] if len(files) == 1 else None


def _config_beside(config: CheckpointOptions, place: Path) -> dict[str, Any]:
    folder = place if place.is_dir() else place.parent
    return _read_config(config, folder) if _config_file(config, folder).exists() else {}


def _config_file(config: CheckpointOptions, folder: Path) -> Path:
    """The file with the sizes as transformers, the model's authors, or paddlenlp 2 name it."""
    names = ("config.json", f"{_backbone(config).model_type}_config.json", "model_config.json")
    there = (folder / name for name in names if (folder / name).exists())
    return next(there, folder / names[0])


def _read_config(config: CheckpointOptions, place: Path) -> dict[str, Any]:
    return _unnested(read_object(_config_file(config, place) if place.is_dir() else place))


def _unnested(content: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes beside each other; paddlenlp 2 keeps the encoder's in the arguments of the model."""
    inner = content.get("init_args", ())
    found: dict[str, Any] = {}
    for part in inner if isinstance(inner, list) else ():
        found |= _unnested(part) if isinstance(part, dict) else {}
    return found | {key: value for key, value in content.items() if not key.startswith("init_")}


def _vocabulary(
    config: CheckpointOptions, place: Path, *, required: bool = True
) -> dict[str, bytes]:
    family = _family(config)
    if place.is_file():
        return {family.files[0]: read_bytes(place)}
    names = [name for name in family.files if (place / name).exists()]
    if required and not family.whole(names):
        raise ValueError(f"--tokenizer_name {place}: no {family.said} there")
    return {name: read_bytes(place / name) for name in names}
