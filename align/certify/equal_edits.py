"""Edits that change nothing that the suite computes with, although the program is another one.

Each is one edit of one file, ``file: before -> after`` as a listing writes it without the line,
with the reason. They are counted with the provably equal ones. An edit that can no longer be made
is refused by a test.
"""

from __future__ import annotations

from collections.abc import Mapping

_MIXED = (
    "a cast for half precision and automatic mixed precision, in which the suite does not train: "
    "where all is float32 or float64, it hands on what it is given"
)
_CAST = {
    "heads/fusion.py": (
        "pooled.astype(self.word_fc.weight.dtype)",
        "features.cls.astype(pooled.dtype)",
    ),
    "heads/pooling.py": (
        "self.weight.astype(x.dtype)",
        "self.bias.astype(x.dtype)",
        "self.running_mean.astype(x.dtype)",
        "self.running_var.astype(x.dtype)",
        "batch.astype(buffer.dtype)",
    ),
    "backbones/layers.py": (
        "super().forward(pixels).astype(x.dtype)",
        'self._fused(x.astype("float32")).astype(x.dtype)',
        'x.astype("float32")',
        'self.weight.astype("float32")',
        'self.bias.astype("float32")',
        "bias.unsqueeze(1).astype(scores.dtype)",
    ),
    "backbones/token_embed.py": ("self.conv.bias.astype(x.dtype)",),
    "backbones/swin_blocks.py": ("self.shift_mask.astype(bias.dtype)",),
    "backbones/swin.py": ("x.astype(self.norm.weight.dtype)",),
    "backbones/vit.py": ("words.astype(self.cls_token.dtype)",),
    "functional.py": ("start.astype(x.dtype)",),
    "train/losses.py": (
        "targets.astype(logits.dtype)",
        "labels.reshape([-1]).astype(logits.dtype)",
    ),
    "train/optimizer.py": (
        "factor.astype(grad.dtype)",
        "learning_rate.astype(weight.dtype)",
    ),
}
"""File -> casts that only half precision and mixed precision need."""


def _without_cast(cast: str) -> str:
    value = cast.rpartition(".astype(")[0].replace('"', "'")  # as ast.unparse writes it
    return f"{cast} -> {value}"


_LAYOUT = "how the numbers lie in memory"
EQUAL_EDITS: Mapping[str, str] = {
    **{
        f"sot_paddle/{file}: {_without_cast(cast)}": _MIXED
        for file, casts in _CAST.items()
        for cast in casts
    },
    "sot_paddle/backbones/swin_blocks.py: [1, 2] -> [2, 1]": (
        "both axes of a window are rolled by the same number"
    ),
    **{
        f"sot_paddle/data/image_transforms.py: pixels.transpose({axes}).astype(np.float32, "
        f'order="C") -> pixels.transpose({axes}).astype(np.float32)': _LAYOUT
        for axes in ("2, 0, 1", "0, 3, 1, 2")
    },
    "sot_paddle/data/token_features.py: np.full(mask.shape, pad_id, dtype=np.int64) -> "
    "np.full(mask.shape, pad_id)": "a whole number fills int64 without being asked",
    "sot_paddle/train/feeding.py: np.asarray(whole) -> whole": "array_split takes a list as well",
    "sot_paddle/functional.py: [1, 2] -> [2, 1]": "the order of the axes of a mean",
}
"""Edit -> why it changes nothing."""
