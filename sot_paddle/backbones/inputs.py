"""Checks of what a model is given: a mistake is one line, not a kernel's text.

Shapes, types and values (ids, token types, masks) are looked at in every call: on a CPU that is a
pass over B x S integers, elsewhere the device is waited for. Inside a traced graph
(``paddle.jit.to_static``) nothing is checked: it has no values.

Shape legend: B samples, S tokens, H x W pixels.
"""

from __future__ import annotations

import paddle
from paddle.jit.sot import psdb

from sot_paddle.versions import is_autocast_enabled

_INTEGERS = (paddle.int64, paddle.int32)
_FLOATS = (paddle.float16, paddle.bfloat16, paddle.float32, paddle.float64)


def check_tokens(
    input_ids: paddle.Tensor,
    token_type_ids: paddle.Tensor | None,
    attention_mask: paddle.Tensor | None,
    *,
    vocab_size: int,
    type_vocab_size: int,
    max_positions: int,
) -> None:
    """Refuse what a text model cannot compute or would compute wrongly.

    Args:
        input_ids: (B, S) int64 or int32.
        token_type_ids: the same, or None.
        attention_mask: (B, S) of zeros and ones (bool, integer or float), or None.

    Raises:
        ValueError: says what, what is expected, what was given and what to do.
    """
    if not paddle.in_dynamic_mode() or psdb.in_sot():
        return
    others = {"token_type_ids": token_type_ids, "attention_mask": attention_mask}
    others = {name: value for name, value in others.items() if value is not None}
    for name, value in {"input_ids": input_ids, **others}.items():
        _require_tensor(name, value, "(B, S)")
    shape = list(input_ids.shape)
    if len(shape) != 2 or shape[0] == 0 or not 1 <= shape[1] <= max_positions:
        raise ValueError(
            f"input_ids must be (B, S), B at least 1, with between 1 and {max_positions} tokens, "
            f"for which the model has positions, got shape {shape}"
        )
    for name, value in others.items():
        its_shape = list(value.shape)
        if its_shape != shape:
            raise ValueError(f"{name} must have the shape of input_ids {shape}, got {its_shape}")
    _require_rows("input_ids", input_ids, "vocab_size", vocab_size)
    if token_type_ids is not None:
        _require_rows("token_type_ids", token_type_ids, "type_vocab_size", type_vocab_size)
    if attention_mask is not None and attention_mask.dtype != paddle.bool:
        _require_mask(attention_mask)


def _require_tensor(name: str, value: object, shape: str) -> None:
    if not isinstance(value, paddle.Tensor):
        raise ValueError(
            f"{name} must be a paddle.Tensor {shape}, got {type(value).__name__}; convert it with "
            "paddle.to_tensor"
        )


def _require_rows(name: str, value: paddle.Tensor, option: str, size: int) -> None:
    """Refuse what are no numbers of the rows of a table."""
    if value.dtype not in _INTEGERS:
        raise ValueError(
            f"{name} must be int64 or int32, got {_named(value.dtype)}; cast it with "
            ".astype('int64') if it holds whole numbers"
        )
    numbers = value.numpy()
    least, largest = int(numbers.min()), int(numbers.max())
    if least < 0 or largest >= size:
        raise ValueError(
            f"{name} must be from 0 to {option} - 1 = {size - 1}, got values from {least} to "
            f"{largest}; use the tokenizer of this model, or build the model with another {option}"
        )


def _require_mask(mask: paddle.Tensor) -> None:
    if not paddle.logical_and(mask != 0, mask != 1).any():  # NaN is neither
        return
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
    expected = f"(B, {in_chans}, {img_size}, {img_size})"
    _require_tensor("images", images, expected)
    shape = list(images.shape)
    if shape[:1] == [0] or shape[1:] != [in_chans, img_size, img_size]:
        raise ValueError(
            f"images must have shape {expected}, B at least 1, got {shape}; resize them, or build "
            "the model with other img_size or in_chans"
        )
    mixed = is_autocast_enabled() and paddle.float64 not in (images.dtype, dtype)
    if images.dtype not in _FLOATS or (images.dtype != dtype and not mixed):
        raise ValueError(
            f"images must be normalised and {_named(dtype)} as the model's weights, got "
            f"{_named(images.dtype)}; cast them with .astype('{_named(dtype)}') (bytes: divide by "
            "255, subtract the mean and divide by the deviation)"
        )
