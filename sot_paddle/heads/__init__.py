"""Classification heads: pooling x power norm x fusion, each a Layer."""

from sot_paddle.heads.factory import build_head

__all__ = ["build_head"]
