"""Edits that change nothing that the suite computes with, although the program is another one.

Each names a file, a piece of its text, what an edit makes of it, and the reason. They are counted
with the provably equal ones. An edit that can no longer be made is refused by a test.
"""

from __future__ import annotations

from align.certify.program_equality import EqualEdit, of_expression

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
_SAME_NUMBER = "a number of NumPy's handed on as it is: the same number"
_NUMBERS = (
    ("data/image_augment.py", "int(rng.integers(height - crop_height + 1))"),
    ("data/image_augment.py", "int(rng.integers(width - crop_width + 1))"),
    ("data/image_augment.py", "int(kind)"),
    ("data/image_augment.py", "float(factors[kind])"),
    ("data/image_augment.py", "bool(rng.random() < config.hflip)"),
    ("data/image_dataset.py", "int(self.source.labels[used])"),
    ("data/image_dataset.py", "int(self.source.labels[index])"),
    ("data/image_dataset.py", "int(index)"),
    ("data/image_erasing.py", "int(rng.integers(1, config.count + 1))"),
    ("data/image_mixing.py", "bool(rng.random() < config.switch_prob)"),
    ("data/image_mixing.py", "float(rng.beta(alpha, alpha))"),
    ("data/image_mixing.py", "int(rng.integers(height))"),
    ("data/image_mixing.py", "int(rng.integers(width))"),
    ("data/image_mixing.py", "float(height * width)"),
    ("data/image_randaugment.py", "bool(rng.random() < 0.5)"),
    ("data/token_features.py", "int(offsets[-1])"),
    ("data/token_features.py", "int(lengths.max())"),
    ("train/evaluation.py", "float(np.mean((logits[:, 0] - labels) ** 2))"),
    (
        "train/evaluation.py",
        "float(np.mean(log_partition - shifted[np.arange(len(labels)), labels]))",
    ),
    ("train/feeding.py", "int(index)"),
    ("train/image_scores.py", "float(np.mean(ranks == 0))"),
    ("train/image_scores.py", "float(np.mean(chosen == label))"),
    ("train/image_scores.py", "int(choice)"),
    ("train/metrics.py", "float(np.mean(predictions == labels))"),
)
_WHOLE = (
    ("data/batching.py", "np.arange(self.n, dtype=np.int64)"),
    ("data/batching.py", "np.asarray(self.lengths, dtype=np.int64)"),
    ("data/image_batches.py", "np.array([sample.label for sample in samples], dtype=np.int64)"),
    ("data/image_batches.py", "np.array([sample.label for sample in good], dtype=np.int64)"),
    ("data/image_folder.py", "np.array(labels, dtype=np.int64)"),
    ("data/image_mixing.py", "np.asarray(labels, dtype=np.int64)"),
    ("data/token_features.py", "np.arange(len(rows), dtype=np.int64)"),
    ("data/token_features.py", "np.asarray(indices, dtype=np.int64)"),
    ("data/token_features.py", "np.asarray(list(positions), dtype=np.int64)"),
    ("data/token_features.py", "np.full(mask.shape, pad_id, dtype=np.int64)"),
    ("train/feeding.py", "np.asarray(batch, dtype=np.int64)"),
    (
        "train/image_scores.py",
        "np.array([index for share in shares for index in share[0]], dtype=np.int64)",
    ),
)
_PATHS = (
    ("data/glue.py", "Path(data_dir)"),
    ("data/image_decoding.py", "Path(path)"),
    ("data/image_folder.py", "Path(root)"),
    ("data/image_folder.py", "Path(folder)"),
    ("data/tokenization.py", "Path(source)"),
)
_NOT_RECORDED = (
    ("train/ema.py", "tensor.detach() * (1.0 - self.decay)"),
    ("train/ema.py", "paddle.assign(tensor.detach())"),
    ("train/ema.py", "paddle.assign(values[name], output=tensor)"),
    ("train/optimizer.py", "paddle.assign(weight * factor, output=weight)"),
    ("train/optimizer.py", "paddle.zeros_like(power)"),
    ("train/optimizer.py", "paddle.assign(paddle.zeros_like(power), output=power)"),
    (
        "train/optimizer.py",
        "paddle.sqrt(paddle.add_n([square.reshape([1]) for square in squares]))",
    ),
    ("train/optimizer.py", "paddle.add_n([square.reshape([1]) for square in squares])"),
)
_SUM = "the order of the axes of a sum"
_ASKED = "the order of what is asked for by `in`"


def _without_cast(file: str, cast: str) -> EqualEdit:
    return of_expression(file, cast, cast.rpartition(".astype(")[0], _MIXED)


def _last_axis(file: str, text: str) -> EqualEdit:
    head, _, tail = text.rpartition("axis=1")
    return EqualEdit(file, text, f"{head}axis=(-1){tail}", _LAST)


def _inside(file: str, call: str, reason: str) -> EqualEdit:
    return of_expression(file, call, call.partition("(")[2][:-1], reason)


def _unasked(file: str, call: str) -> EqualEdit:
    reason = "whole numbers make int64 without being asked"
    return of_expression(file, call, call.replace(", dtype=np.int64", ""), reason)


def _not_recorded(file: str, value: str) -> EqualEdit:
    return of_expression(file, value, f"({value}).detach()", "no gradient is recorded there")


EQUAL_EDITS: tuple[EqualEdit, ...] = (
    *(_without_cast(*cast) for cast in _CASTS),
    *(_last_axis(*place) for place in _SECOND),
    *(_inside(*call, _SAME_NUMBER) for call in _NUMBERS),
    *(_unasked(*call) for call in _WHOLE),
    *(_inside(*call, "every caller hands over a path") for call in _PATHS),
    *(_not_recorded(*value) for value in _NOT_RECORDED),
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
        "train/evaluation.py", "if logits.shape[1] == 1:", "if logits.shape[(-1)] == 1:", _LAST
    ),
    EqualEdit(
        "train/evaluation.py",
        "if logits.shape[1] == 1 else",
        "if logits.shape[(-1)] == 1 else",
        _LAST,
    ),
    EqualEdit(
        "train/losses.py", "logits.shape[-1], smoothing", "logits.shape[(1)], smoothing", _LAST
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
        "data/batching.py",
        "np.arange(self.n, dtype=np.int64)",
        "self.n",
        "permutation takes a number as well, and an order without shuffling is not aligned",
    ),
    EqualEdit("train/feeding.py", "range(0)", "range((-1))", "both ranges are empty"),
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
