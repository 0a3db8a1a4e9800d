"""Weight conversion between PyTorch checkpoints and the Paddle side, in NumPy alone.

One engine, one pure-data table for each named layout, both directions from the same table.
"""

from align.weights.build import build_plan
from align.weights.convert import DTYPES, convert_file
from align.weights.layout import HeadTable, Layout, Row
from align.weights.manifest import Manifest
from align.weights.models import MODELS
from align.weights.plan import Entry, Plan
from align.weights.registry import LAYOUTS

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "MODELS",
    "Entry",
    "HeadTable",
    "Layout",
    "Manifest",
    "Plan",
    "Row",
    "build_plan",
    "convert_file",
]
