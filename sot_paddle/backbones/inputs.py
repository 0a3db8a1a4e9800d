"""What a model may be given: checked first, so that a mistake is one line, not a kernel's text.

Shapes and types are looked at in every call. Values (ids, token types, masks) need the numbers
themselves: on a CPU that is a pass over B x S integers; elsewhere the device is waited for, so that
in training only every 64th batch is looked at, the first one included. A program makes its masks
and ids the same way in every batch. Inside a traced graph (``paddle.jit.to_static``) nothing is
checked: it has no values.

Shape legend: B samples, S tokens, H x W pixels.
"""

from __future__ import annotations

import paddle
from paddle.jit.sot import psdb

from sot_paddle.versions import is_autocast_enabled

SAMPLED = 64
"""Batches of a training on an accelerator for each whose values are looked at."""

_INTEGERS = (paddle.int64, paddle.int32)
_FLOATS = (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


class TextCheck:
    """Checks token ids, types and masks of one model, for rows of ``max_positions`` at most."""

    def __init__(self, vocab_size: int, type_vocab_size: int, max_positions: int) -> None:
        self.vocab_size, self.type_vocab_size = vocab_size, type_vocab_size
        self.max_positions = max_positions
        self._batches = 0

    def __call__(
        self,
        input_ids: paddle.Tensor,
        token_type_ids: paddle.Tensor | None,
        attention_mask: paddle.Tensor | None,
        *,
        training: bool,
    ) -> None:
        """Refuse by a ValueError what the model cannot compute or would compute wrongly.

        Args:
            input_ids: (B, S) int64 or int32.
            token_type_ids: the same, or None.
            attention_mask: (B, S) of zeros and ones (bool, integer or float), or None.
        """
        if not paddle.in_dynamic_mode() or psdb.in_sot():
            return
        _require_integers("input_ids", input_ids)
        if input_ids.ndim != 2 or not 1 <= input_ids.shape[1] <= self.max_positions:
            raise ValueError(
                f"input_ids must be (B, S) with between 1 and {self.max_positions} tokens, for "
                f"which the model has positions, got shape {list(input_ids.shape)}"
            )
        _require_samples("input_ids", input_ids, "sequence")
        if token_type_ids is not None:
            _require_integers("token_type_ids", token_type_ids)
        others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
        for name, value in others.items():
            if value is not None:
                _require_tensor(name, value, "(B, S)")
                if value.shape != input_ids.shape:
                    raise ValueError(
                        f"{name} must have the shape of input_ids {list(input_ids.shape)}, "
                        f"got {list(value.shape)}"
                    )
        self._batches += training and not input_ids.place.is_cpu_place()
        if not training or input_ids.place.is_cpu_place() or self._batches % SAMPLED == 1:
            self._check_values(input_ids, token_type_ids, attention_mask)

    def _check_values(
        self, ids: paddle.Tensor, types: paddle.Tensor | None, mask: paddle.Tensor | None
    ) -> None:
        _require_range("input_ids", ids, "vocab_size", self.vocab_size)
        if types is not None:
            _require_range("token_type_ids", types, "type_vocab_size", self.type_vocab_size)
        is_bool = mask is None or mask.dtype == paddle.bool
        if not is_bool and paddle.logical_and(mask != 0, mask != 1).any():  # NaN is neither
            _refuse_mask(mask)


def _require_range(name: str, value: paddle.Tensor, option: str, size: int) -> None:
    if value.place.is_cpu_place():
        numbers = value.numpy()
        least, largest = int(numbers.min()), int(numbers.max())
    else:
        least, largest = paddle.stack([value.min(), value.max()]).tolist()  # waits once
    if least < 0 or largest >= size:
        raise ValueError(
            f"{name} must be from 0 to {option} - 1 = {size - 1}, got values from {least} to "
            f"{largest}; use the tokenizer of this model, or build the model with another {option}"
        )


def _refuse_mask(mask: paddle.Tensor) -> None:
    values = mask.astype("float64")
    least, largest = float(values.min()), float(values.max())
    hint = "pass 1 for every valid token and 0 for padding"
    if largest <= 0:
        hint = (
            "that is an additive mask, which the model makes itself: pass the mask it was made "
            "from, (attention_mask == 0).astype('int64')"
        )
    raise ValueError(
        f"attention_mask must hold 1 (valid) and 0 (padding) only, got values from {least:g} to "
        f"{largest:g}; {hint}"
    )


def _require_tensor(name: str, value: object, shape: str) -> None:
    if not isinstance(value, paddle.Tensor):
        raise ValueError(
            f"{name} must be a paddle.Tensor {shape}, got {type(value).__name__}; convert it with "
            "paddle.to_tensor"
        )


def _require_integers(name: str, value: paddle.Tensor) -> None:
    _require_tensor(name, value, "(B, S)")
    if value.dtype not in _INTEGERS:
        raise ValueError(
            f"{name} must be int64 or int32, got {_named(value.dtype)}; cast it with "
            ".astype('int64') if it holds whole numbers"
        )


def _require_samples(name: str, value: paddle.Tensor, sample: str) -> None:
    if value.shape[0] == 0:
        raise ValueError(
            f"{name} must hold at least one {sample}, got shape {list(value.shape)}; leave an "
            "empty batch out"
        )


def _named(dtype: paddle.dtype) -> str:
    return str(dtype).removeprefix("paddle.")


def check_images(
    images: paddle.Tensor, *, in_chans: int, img_size: int, dtype: paddle.dtype
) -> None:
    """Refuse images that a model cannot take; values are not looked at.

    Args:
        images: (B, in_chans, H, W), H = W = ``img_size``, in the model's floating type (under
            automatic mixed precision any type of at most 32 bits).

    Raises:
        ValueError: says what, what is expected, what was given and what to do.
    """
    if not paddle.in_dynamic_mode() or psdb.in_sot():
        return
    expected = [in_chans, img_size, img_size]
    shape = f"(B, {', '.join(map(str, expected))})"
    _require_tensor("images", images, shape)
    if images.ndim != 4 or list(images.shape[1:]) != expected:
        raise ValueError(
            f"images must have shape {shape}, got {list(images.shape)}; resize them, or build "
            "the model with other img_size or in_chans"
        )
    _require_samples("images", images, "image")
    if images.dtype not in _FLOATS:
        raise ValueError(
            f"images must be floating-point and normalised, got {_named(images.dtype)}; divide by "
            "255, subtract the mean and divide by the deviation first"
        )
    mixed = is_autocast_enabled() and paddle.float64 not in (images.dtype, dtype)
    if images.dtype != dtype and not mixed:
        raise ValueError(
            f"images must be {_named(dtype)} as the model's weights, got {_named(images.dtype)}; "
            f"cast them with .astype('{_named(dtype)}')"
        )
