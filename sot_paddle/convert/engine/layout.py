"""The vocabulary of the conversion tables: rows, heads, layouts. Pure data.

Templates are full tensor names in which ``{}`` is an index: of the layer, or of the stage and then
of the layer in it. Shapes are PyTorch's, in symbols: ``"C"`` must be the same number wherever it
stands, ``"q*k"`` is a product and ``"1"`` is one. In a symbol ``{}`` is the stage, ``{prev}`` the
stage before and ``{last}`` the last one, so that ``"C{}"`` is another number in every stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

COUNTED = "batches seen so far; Paddle's BatchNorm has a fixed momentum and does not count"


@dataclass(frozen=True)
class Row:
    """One kind of tensor on both sides.

    Args:
        source: PyTorch template, written when converting back.
        destination: Paddle template.
        kind: key of `sot_paddle.convert.engine.transforms.KINDS`.
        shape: PyTorch axes as symbols.
        aliases: other PyTorch templates that are read as well (old spellings).
        together: name of the option that makes a tensor whose absence is not reported; all
            tensors of that name exist, or none.
        start: the first index that Paddle's template has.
        shift: Paddle's first index minus PyTorch's.
        beside: (Paddle template of another row, whether it is there): the row is for files that
            have, or have not, that tensor; for one tensor with two names on the PyTorch side.
    """

    source: str
    destination: str
    kind: str
    shape: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    together: str = ""
    start: int = 0
    shift: int = 0
    beside: tuple[str, bool] | None = None


@dataclass(frozen=True)
class Layout:
    """A named source layout: everything the engine must know about it.

    Args:
        description: one line for ``--help``.
        encoder: rows that must all be present.
        heads: head name -> its rows.
        ignored: PyTorch template (a trailing ``*`` matches the rest) -> reason to leave it out.
        foreign: class of transformers (config.json's ``architectures``) whose head is not one of
            `heads` although its names may be theirs -> template -> reason to leave it out.
        companions: template -> (the tensor without which it is another head's, the reason to leave
            it out then).
        headless: as `ignored`, for a model whose head this layout does not know; empty when such a
            model is refused.
        optional_prefix: may be missing from all source names.
        config: config.json key -> symbol, for sizes of the encoder.
        head_config: head name -> the same for its sizes.
        depth_key: config.json key of the number of layers.
        family: the backbone that `encoder` describes, as in `known_models.MODELS`.
        written_as: key of `hf_config.FAMILIES` that config.json on the PyTorch side follows; the
            family's own when empty.
        models: beginnings of the registry names that the layout is for; all of the family when
            empty.
        embeds: token embedding -> its rows; empty when `encoder` has the embeddings.
        embedless: as `headless`, for a model whose token embedding this layout does not know.
        tokenizer: settings of the original's tokenizer, which go after those of
            tokenizer_config.json.
        written_under: keys under which a torch file is written; none for a plain state dict.
    """

    description: str
    encoder: tuple[Row, ...]
    heads: Mapping[str, tuple[Row, ...]]
    ignored: Mapping[str, str] = field(default_factory=dict)
    foreign: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    companions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    headless: Mapping[str, str] = field(default_factory=dict)
    optional_prefix: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    head_config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    depth_key: str = "num_hidden_layers"
    family: str = "bert"
    written_as: str = ""
    models: tuple[str, ...] = ()
    embeds: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    embedless: Mapping[str, str] = field(default_factory=dict)
    written_under: tuple[str, ...] = ()
    tokenizer: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """All rows, those of the token embeddings and of the heads included."""
        return (*self.encoder, *chain(*self.embeds.values(), *self.heads.values()))

    @cached_property
    def counters(self) -> Mapping[str, str]:
        """Counter of a batch normalisation in PyTorch -> Paddle tensor that it is written beside.

        It is an int64 scalar that Paddle does not have; converting back writes 0.
        """
        return {
            row.source.replace(".running_mean", ".num_batches_tracked"): row.destination
            for row in self.rows
            if row.source.endswith(".running_mean")
        }

    @property
    def left_out(self) -> Mapping[str, str]:
        """PyTorch template -> reason, whatever the model's head is."""
        return {**self.ignored, **dict.fromkeys(self.counters, COUNTED)}
