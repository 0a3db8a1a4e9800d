"""What a conversion says: options of the model, attention heads, notes; the record of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sot_paddle.convert.engine.conversion_plan import ConversionPlan, by_reason
from sot_paddle.convert.engine.known_models import TEXT_FAMILIES, known_traits
from sot_paddle.convert.engine.layout import Layout
from sot_paddle.convert.formats.hf_config import (
    FAMILIES,
    as_json,
    attention_heads,
    complete_config,
)
from sot_paddle.convert.formats.source import Source

_HEAD_WIDTH = 64  # hidden size / attention heads in every BERT of the original paper
_SHOWN = 8  # names of one part in one line


@dataclass(frozen=True)
class Description:
    """What stands beside the tensors.

    Args:
        heads: attention heads, None when unknown or not asked for.
        config: content of config.json, {} for none.
        notes: what the user should know.
    """

    heads: int | None
    config: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)


def describe(
    plan: ConversionPlan, table: Layout, source: Source, heads: int | None, *, directory: bool
) -> Description:
    """Describe a planned conversion.

    Args:
        plan: the conversion.
        table: its tables.
        source: what is read.
        heads: attention heads as the user stated them.
        directory: whether a directory is written.

    Raises:
        ValueError: a number of heads that cannot be, or that nobody knows and a directory needs.
    """
    if table.family in TEXT_FAMILIES:
        return _describe_text(plan, table, source, heads, directory=directory)
    for what, value in (("--num-attention-heads", heads), ("--vocab", source.vocabulary)):
        if value:
            raise ValueError(f"{what} is for text models, and {plan.model!r} is none")
    return Description(None, {} if plan.reverse else image_options(plan))


def _describe_text(
    plan: ConversionPlan, table: Layout, source: Source, asked: int | None, *, directory: bool
) -> Description:
    hidden, notes = plan.sizes["C"], []
    heads = attention_heads(asked, source.metadata, source.config, hidden, table.family)
    if heads is None and plan.reverse and directory:
        heads, rest = divmod(hidden, _HEAD_WIDTH)
        if rest:
            raise ValueError(
                f"the number of attention heads is unknown and the hidden size {hidden} is no"
                f" multiple of {_HEAD_WIDTH}; state it with --num-attention-heads"
            )
        notes.append(
            f"the number of attention heads is unknown: {heads} assumed (64 channels"
            " each); state it with --num-attention-heads"
        )
    elif heads is None and not plan.reverse:
        notes.append(
            "the number of attention heads is unknown (no config.json); state it with"
            " --num-attention-heads, or when converting back to a directory"
        )
    config = complete_config(plan, table, source.config, heads)
    untold = [name for name in FAMILIES[table.family].untold if name not in config]
    if untold and not plan.reverse:
        notes.append(
            f"SRC does not state {' and '.join(untold)}: DST does not either, and the model that it"
            " is loaded into uses its own"
        )
    if not source.vocabulary and directory:
        notes.append(
            "no vocabulary found (vocab.txt, tokenizer.json): DST has none; add it with --vocab DIR"
        )
    return Description(heads, config, notes)


def image_options(plan: ConversionPlan) -> dict[str, Any]:
    """The options of the model that the tensors tell exactly, as ``create_model`` names them."""
    sizes, written = plan.sizes, {entry.destination for entry in plan.entries}
    width = sizes["C0" if "C0" in sizes else "C"]
    options: dict[str, Any] = {"model": plan.model, "embed_dim": width}
    if known_traits(plan.model).family == "swin":
        stages = range(len(plan.depths))
        options["depths"] = list(plan.depths)
        options["num_heads"] = [sizes[f"H{stage}"] for stage in stages]
    else:
        options["depth"] = plan.depth
    options["qkv_bias"] = any(name.endswith(".attn.qkv.bias") for name in written)
    if "X" in sizes:
        options["in_chans"] = sizes["X"]
    if "embed.blocks.0.layers.0.norm1.weight" in written:
        options["dense_norm"] = "bn"
    if "K" in sizes:
        options["num_classes"] = sizes["K"]
    return options


@dataclass(frozen=True)
class Manifest:
    """The record of a conversion.

    Args:
        plan: the conversion.
        source: path that was read.
        destination: path that was written.
        num_attention_heads: None when unknown.
        tensors: for each tensor source (None: filled in), destination, transform, part, shape,
            source_shape, dtype, source_dtype, sha256 of the destination's bytes.
        notes: what else the user should know.
        files: name of the file of weights -> its size and CRC.
    """

    plan: ConversionPlan
    source: str
    destination: str
    num_attention_heads: int | None
    tensors: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    files: Mapping[str, Mapping[str, int]]

    def summary(self) -> str:
        """Describe the conversion for a console: what was written, left out and noted."""
        plan, ignored, absent = self.plan, by_reason(self.plan.ignored), self.plan.absent
        if plan.embed:
            layers = f"{'+'.join(map(str, plan.depths))} blocks"
            width = plan.sizes.get("C", plan.sizes.get("C0"))
            model = f"{layers}, width {width}, embedding {plan.embed}, head {plan.head}"
            absent = _by_part(absent)
        else:
            heads = self.num_attention_heads or "unknown"
            model = f"{plan.depth} layers, hidden {plan.sizes['C']}, heads {heads}"
            ignored = [f"{name} ({reason})" for name, reason in plan.ignored.items()]
        lines = [f"wrote {self.destination}: {len(self.tensors)} tensors, {plan.model}, {model}"]
        lines += [f"ignored: {text}" for text in ignored]
        lines += [f"not in SRC, left at initialisation: {text}" for text in absent]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])

    def to_json(self) -> bytes:
        """Encode for a manifest file."""
        plan = self.plan
        content = {
            **{"layout": plan.layout, "model": plan.model, "head": plan.head},
            **{"reverse": plan.reverse, "source": self.source, "destination": self.destination},
            "num_hidden_layers": plan.depth,
            "num_attention_heads": self.num_attention_heads,
            **{"sizes": plan.sizes, "tensors": self.tensors, "ignored": plan.ignored},
            **{"absent": plan.absent, "notes": self.notes, "depths": plan.depths},
            **{"embed": plan.embed, "files": self.files},
        }
        return as_json(content)


def _by_part(absent: Sequence[str]) -> list[str]:
    """Names by the part of the model that they are of, counted where there are many."""
    parts: dict[str, list[str]] = {}
    for name in absent:
        parts.setdefault(name.partition(".")[0], []).append(name)
    return [
        ", ".join(names) if len(names) <= _SHOWN else f"{part}.* ({len(names)} tensors)"
        for part, names in parts.items()
    ]
