"""The record of a conversion: every tensor with its way, shape, dtype and checksum."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sot_paddle.convert.engine.conversion_plan import by_reason
from sot_paddle.convert.formats.hf_config import as_json

_SHOWN = 8  # names of one part in one line


@dataclass(frozen=True)
class Manifest:
    """The record of a conversion.

    Args:
        layout: layout name.
        model: registry name.
        head: head found in the source.
        reverse: from Paddle to PyTorch.
        source: path that was read.
        destination: path that was written.
        num_hidden_layers: depth.
        num_attention_heads: None when unknown.
        sizes: symbol of the table -> axis length.
        tensors: for each tensor source (None: filled in), destination, transform, part, shape,
            source_shape, dtype, source_dtype, sha256 of the destination's bytes.
        ignored: source tensor -> reason.
        absent: head tensors without a source, left at their initialisation.
        notes: what else the user should know.
        depths: layers of each stage.
        embed: token embedding found in the source, "" for text models.
    """

    layout: str
    model: str
    head: str
    reverse: bool
    source: str
    destination: str
    num_hidden_layers: int
    num_attention_heads: int | None
    sizes: Mapping[str, int]
    tensors: tuple[Mapping[str, Any], ...]
    ignored: Mapping[str, str]
    absent: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    depths: tuple[int, ...] = ()
    embed: str = ""

    def summary(self) -> str:
        """Describe the conversion for a console: what was written, left out and noted."""
        written = f"wrote {self.destination}: {len(self.tensors)} tensors, {self.model},"
        notes = [f"note: {note}" for note in self.notes]
        if self.embed:
            return "\n".join([f"{written} {self._image_model()}", *self._image_lines(), *notes])
        heads = self.num_attention_heads or "unknown"
        lines = [
            f"{written} {self.num_hidden_layers} layers, hidden {self.sizes['C']}, heads {heads}"
        ]
        lines += [f"ignored: {name} ({reason})" for name, reason in self.ignored.items()]
        lines += [f"not in SRC, left at initialisation: {name}" for name in self.absent]
        return "\n".join([*lines, *notes])

    def _image_model(self) -> str:
        layers = "+".join(map(str, self.depths))
        width = self.sizes.get("C", self.sizes.get("C0"))
        return f"{layers} blocks, width {width}, embedding {self.embed}, head {self.head}"

    def _image_lines(self) -> list[str]:
        parts: dict[str, list[str]] = {}
        for name in self.absent:
            parts.setdefault(name.partition(".")[0], []).append(name)
        return [
            *(f"ignored: {text}" for text in by_reason(self.ignored)),
            *(
                "not in SRC, left at initialisation: "
                + (", ".join(names) if len(names) <= _SHOWN else f"{part}.* ({len(names)} tensors)")
                for part, names in parts.items()
            ),
        ]

    def to_json(self) -> bytes:
        """Encode for a manifest file."""
        return as_json(asdict(self))
