"""Classification heads: pooling x power norm x fusion."""

from sot_torch_ref.heads.factory import HeadConfig, build_head

__all__ = ["HeadConfig", "build_head"]
