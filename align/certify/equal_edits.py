"""Edits that change nothing that the suite computes with, although the program is another one.

Each names a file, a piece of its text, what an edit makes of it, and the reason. They are counted
with the provably equal ones. An edit that can no longer be made is refused by a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class EqualEdit:
    """An edit that changes nothing.

    Attributes:
        file: below the product's folder.
        old: text that occurs in it, at one place or several.
        new: what stands there instead, as a mutant has it.
        reason: why nothing changes.
    """

    file: str
    old: str
    new: str
    reason: str

    def results(self, text: str) -> Iterator[str]:
        """What becomes of the file's text, for each place."""
        at = text.find(self.old)
        while at >= 0:
            yield text[:at] + self.new + text[at + len(self.old) :]
            at = text.find(self.old, at + 1)


_MIXED = (
    "a cast for half precision and automatic mixed precision, in which the suite does not train: "
    "where all is float32 or float64, it hands on what it is given"
)
_CASTS = (
    ("heads/fusion.py", "pooled.astype(self.word_fc.weight.dtype)"),
    ("heads/fusion.py", "features.cls.astype(pooled.dtype)"),
    ("heads/pooling.py", "self.weight.astype(x.dtype)"),
    ("heads/pooling.py", "self.bias.astype(x.dtype)"),
    ("heads/pooling.py", "self.running_mean.astype(x.dtype)"),
    ("heads/pooling.py", "self.running_var.astype(x.dtype)"),
    ("heads/pooling.py", "batch.astype(buffer.dtype)"),
    ("backbones/layers.py", "super().forward(pixels).astype(x.dtype)"),
    ("backbones/layers.py", 'self._fused(x.astype("float32")).astype(x.dtype)'),
    ("backbones/layers.py", 'x.astype("float32")'),
    ("backbones/layers.py", 'self.weight.astype("float32")'),
    ("backbones/layers.py", 'self.bias.astype("float32")'),
    ("backbones/layers.py", "bias.unsqueeze(1).astype(scores.dtype)"),
    ("backbones/token_embed.py", "self.conv.bias.astype(x.dtype)"),
    ("backbones/swin_blocks.py", "self.shift_mask.astype(bias.dtype)"),
    ("backbones/swin.py", "x.astype(self.norm.weight.dtype)"),
    ("backbones/vit.py", "words.astype(self.cls_token.dtype)"),
    ("functional.py", "start.astype(x.dtype)"),
    ("train/losses.py", "targets.astype(logits.dtype)"),
    ("train/losses.py", "labels.reshape([-1]).astype(logits.dtype)"),
    ("train/optimizer.py", "factor.astype(grad.dtype)"),
    ("train/optimizer.py", "learning_rate.astype(weight.dtype)"),
)
_LAST = "of a tensor of two axes the second is the last"
_SECOND = (
    ("train/evaluation.py", "argmax(axis=1)"),
    ("train/evaluation.py", "max(axis=1, keepdims=True)"),
    ("train/evaluation.py", "exp(shifted).sum(axis=1)"),
    ("train/image_scores.py", "earlier)).sum(axis=1)"),
    ("train/image_scores.py", "choices = logits.argmax(axis=1)"),
    ("functional.py", "axis1=1, axis2=2).sum(axis=1)"),
    ("functional.py", 'dtype="int64"), axis=1)'),
    ("heads/fusion.py", "pooled], axis=1)"),
    ("heads/fusion.py", "mask], axis=1)"),
)
_SUM = "the order of the axes of a sum"
_ASKED = "the order of what is asked for by `in`"


def _without_cast(file: str, cast: str) -> EqualEdit:
    value = cast.rpartition(".astype(")[0].replace('"', "'")  # as ast.unparse writes it
    return EqualEdit(file, cast, value, _MIXED)


def _last_axis(file: str, text: str) -> EqualEdit:
    head, _, tail = text.rpartition("axis=1")
    return EqualEdit(file, text, f"{head}axis=(-1){tail}", _LAST)


EQUAL_EDITS: tuple[EqualEdit, ...] = (
    *(_without_cast(*cast) for cast in _CASTS),
    *(_last_axis(*place) for place in _SECOND),
    EqualEdit("functional.py", "[1, 2] if", "([2, 1]) if", _SUM),
    EqualEdit("functional.py", "sum(axis=[1, 2],", "sum(axis=([2, 1]),", _SUM),
    EqualEdit("heads/pooling.py", "sum(axis=[0, 1])", "sum(axis=([1, 0]))", _SUM),
    EqualEdit(
        "heads/pooling.py",
        "in (paddle.float16, paddle.bfloat16)",
        "in ((paddle.bfloat16, paddle.float16))",
        _ASKED,
    ),
    EqualEdit(
        "heads/pooling.py",
        "((self.running_mean, mean), (self.running_var, unbiased))",
        "(((self.running_var, unbiased), (self.running_mean, mean)))",
        "two updates of two buffers, in any order",
    ),
    EqualEdit(
        "backbones/swin_blocks.py",
        "axis=[1, 2])",
        "axis=([2, 1]))",
        "both axes of a window are rolled by the same number",
    ),
    EqualEdit(
        "backbones/token_stages.py",
        "[batch, self.inner_dim, height, width]",
        "([batch, self.inner_dim, width, height])",
        "images are square; others are refused",
    ),
    *(
        EqualEdit(
            "data/image_transforms.py",
            f'pixels.transpose({axes}).astype(np.float32, order="C")',
            f"pixels.transpose({axes}).astype(np.float32)",
            "how the numbers lie in memory",
        )
        for axes in ("2, 0, 1", "0, 3, 1, 2")
    ),
    EqualEdit(
        "data/token_features.py",
        "np.full(mask.shape, pad_id, dtype=np.int64)",
        "np.full(mask.shape, pad_id)",
        "a whole number fills int64 without being asked",
    ),
    EqualEdit(
        "train/evaluation.py", "if logits.shape[1] == 1:", "if logits.shape[(-1)] == 1:", _LAST
    ),
    EqualEdit(
        "train/evaluation.py",
        "if logits.shape[1] == 1 else",
        "if logits.shape[(-1)] == 1 else",
        _LAST,
    ),
    EqualEdit(
        "train/metrics.py",
        "_matthews(labels, predictions)}",
        "_matthews(predictions, labels)}",
        "a correlation of two, in any order",
    ),
    EqualEdit(
        "train/image_run.py",
        "config.seed + distributed.rank()",
        "(config.seed - distributed.rank())",
        "the rank of the only process is 0",
    ),
    EqualEdit(
        "backbones/layers.py",
        'paddle.floor(keep + paddle.rand(shape, dtype="float32"))',
        "paddle.floor(keep + paddle.rand(shape, dtype='float32')).detach()",
        "random numbers have no gradient",
    ),
    EqualEdit(
        "data/image_batches.py",
        "np.array([sample.label for sample in samples], dtype=np.int64)",
        "np.array([sample.label for sample in samples])",
        "whole numbers make int64 without being asked",
    ),
    EqualEdit(
        "data/batching.py",
        "np.arange(self.n, dtype=np.int64)",
        "self.n",
        "permutation takes a number as well, and an order without shuffling is not aligned",
    ),
    EqualEdit("train/feeding.py", "np.asarray(whole)", "whole", "array_split takes a list as well"),
)
"""Every such edit that is known."""


def changes_nothing(file: str, before: str, after: str) -> bool:
    """Whether the edit that made a file's text another one is in the list.

    Args:
        file: below the product's folder.
        before: its text.
        after: the edited one.
    """
    return any(after in set(one.results(before)) for one in EQUAL_EDITS if file == one.file)
