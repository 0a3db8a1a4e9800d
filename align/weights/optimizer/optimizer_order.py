"""The order in which a PyTorch model registers its parameters, from the conversion's tables.

``optimizer.state_dict()`` numbers parameters in that order, and safetensors does not keep it. A
module registers its own parameters before its children's; children come as the table lists them,
numbered ones by number, or as below where the table lists them otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from align.weights.engine.conversion_plan import ConversionPlan
from align.weights.engine.known_models import known_traits

BUFFERS = (
    *("running_mean", "running_var", "num_batches_tracked"),
    *("position_ids", "relative_position_index", "attn_mask"),
)
"""Ends of the names of tensors that no optimizer moves."""

_Children = Mapping[str, tuple[str, ...]]
_VIT: _Children = {"": ("cls_token", "pos_embed", "patch_embed", "blocks", "norm", "head")}
_SWIN_TOP = ("patch_embed", "layers", "norm", "head")
_CHILDREN: Mapping[tuple[str, str], _Children] = {
    ("sot_official", "vit"): {
        "": ("cls_token", "pos_embed", "visual_tokens", "blocks", "classifier", "norm")
    },
    ("deit_timm", "vit"): _VIT,
    ("deit_official", "vit"): _VIT,
    ("swin_timm", "swin"): {"": _SWIN_TOP, "layers.{}": ("downsample", "blocks")},
    ("swin_microsoft", "swin"): {"": _SWIN_TOP, "layers.{}": ("blocks", "downsample")},
    ("sot_torch_ref", "vit"): {"": ("cls_token", "pos_embed", "embed", "blocks", "norm", "head")},
    ("sot_torch_ref", "swin"): {
        "": ("embed", "stages", "norm", "head"),
        "stages.{}": ("downsample", "blocks"),
    },
}
"""(layout, family) -> module, an index as ``{}`` -> its children in order of registration."""


def registration_order(plan: ConversionPlan) -> list[str]:
    """Names of PyTorch's parameters in the order in which the model registers them.

    Args:
        plan: from PyTorch to Paddle.

    Returns:
        Every parameter that the plan converts, position tables included, whether trained or not.
    """
    known = _CHILDREN.get((plan.layout, known_traits(plan.model).family), {})
    tree: dict[str, dict] = {}
    for entry in plan.entries:
        if not entry.source.endswith(BUFFERS):
            node = tree
            for part in entry.source.split("."):
                node = node.setdefault(part, {})
    return list(_walk(tree, (), known))


def _walk(node: Mapping[str, Mapping], path: tuple[str, ...], known: _Children) -> list[str]:
    given = known.get(".".join("{}" if part.isdecimal() else part for part in path), ())

    def place(child: str) -> tuple[bool, int]:
        if child.isdecimal():
            return bool(node[child]), int(child)
        return bool(node[child]), given.index(child) if child in given else 0

    found = []
    for child in sorted(node, key=place):  # equal places stay as the table lists them
        inner = _walk(node[child], (*path, child), known) if node[child] else None
        found += [".".join((*path, child))] if inner is None else inner
    return found
