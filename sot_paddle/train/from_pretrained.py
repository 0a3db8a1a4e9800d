"""A model from a checkpoint of any kind in one call."""

from __future__ import annotations

import logging
import os
from typing import Any

from paddle import nn

from sot_paddle.config import HEADS, PLAIN, SECOND_ORDER, require_one_of, some
from sot_paddle.reading import read_object
from sot_paddle.train import pretrained
from sot_paddle.train.model_folder import (
    find_model_folder,
    image_from_pretrained,
    is_of_images,
    weights_file,
)
from sot_paddle.train.saved_model import check_trained_head, find_text_folder

_LOG = logging.getLogger(__name__)


def from_pretrained(
    source: str | os.PathLike[str],
    *,
    head: str | None = None,
    num_classes: int | None = None,
    **options: Any,
) -> nn.Layer:
    """Build a model with the weights and the sizes of a checkpoint; nothing is written.

    Args:
        source: a Hugging Face folder or file (or a name in its cache), a file or folder that
            ``tools/convert_weights.py`` or `save_weights` wrote, or the folder of a training (its
            best weights; of images their moving average).
        head: of a language model: ``"mgcrp"`` or ``"plain"``; None for the checkpoint's own.
        num_classes: outputs of a new classifier; None for the checkpoint's own.
        options: of the model, as `create_model` takes them, such as ``q_dim=12``; they go before
            the checkpoint's.

    Returns:
        The model in evaluation mode. What the checkpoint does not have of the head is new, with
        random weights, and a log line names it.

    Raises:
        ValueError: there is no such checkpoint, or it does not tell what the model needs; says
            which file and what to give.
    """
    path = pretrained.locate(str(source), "")
    if path is None:
        raise ValueError(
            f"{source}: no such file or folder, nor a name in the hub cache, and nothing is "
            "downloaded (random weights: sot_paddle.create_model)"
        )
    if (path / "export.json").is_file():
        trained = read_object(path / "export.json").get("source")
        raise ValueError(
            f"{path} is an export, whose graph has no weights by name: give the folder of the "
            f"training that it was made from, {trained}"
        )
    if find_model_folder(path) is not None:
        path = weights_file(path, ema=True)
    if path.is_dir():
        path = find_text_folder(path) or path
    opened = pretrained.open_weights(path)
    if is_of_images(opened):
        if head is not None:
            raise ValueError(f"{path} is of an image model: give pooling in the place of head")
        return image_from_pretrained(path, opened, num_classes, options)
    require_one_of("head", head, (None, *HEADS))
    new_head = options.get("pooling") or {"mgcrp": SECOND_ORDER}.get(head, head)
    checkpoint = pretrained.read(path, opened, pooling=new_head)
    pretrained.note_unstated(checkpoint, options)
    classes = checkpoint.num_classes if num_classes is None else num_classes
    if classes is None:
        raise ValueError(
            f"{checkpoint.origin} holds no trained classifier: give num_classes (and head='mgcrp' "
            "for the second-order head)"
        )
    plain = checkpoint.backbone.plain
    pooling = plain if new_head == PLAIN else new_head or checkpoint.head.get("pooling", plain)
    of_head = checkpoint.head if checkpoint.head.get("pooling") == pooling else {"pooling": pooling}
    model = checkpoint.build(classes, {**of_head, **options})
    _, fresh = pretrained.load(model, checkpoint)
    if not fresh:
        check_trained_head(model, checkpoint.head, checkpoint.origin)
    elif num_classes is None and new_head is None:
        raise ValueError(
            f"{checkpoint.origin}: {fresh[0]} is missing or of another size: give the options that "
            "its head was trained with, or head and num_classes for a new one"
        )
    else:
        _LOG.warning("%s: new, with random weights: %s", checkpoint.origin, some(fresh))
    model.eval()
    return model
