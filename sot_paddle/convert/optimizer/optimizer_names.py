"""Which weight is parameter number 37 of a PyTorch optimizer: from a list, a rule, or not at all.

``optimizer.state_dict()`` numbers parameters in the order of its groups. Where the groups do not
name them, the order of the model's parameters is needed (that of a torch file, or of the tables)
and the rule by which a training split them into groups. A rule is taken only when it is the only
one under which every moment has its weight's shape.

Safetensors does not keep the order of the parameters: it follows from the conversion's tables. A
module registers its own parameters before its children's; children come as the table lists them,
numbered ones by number, or as below where the table lists them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sot_paddle.config import some
from sot_paddle.convert.engine.conversion_plan import ConversionPlan
from sot_paddle.convert.engine.known_models import known_traits
from sot_paddle.convert.optimizer.optimizer_torch import group_names, param_groups
from sot_paddle.reading import read_json

Shapes = Mapping[str, tuple[int, ...]]
HOW = (
    'write them where the training is: json.dump([[names[p] for p in g["params"]] for g in '
    'optimizer.param_groups], open("names.json", "w")) with names = {p: n for n, p in '
    "model.named_parameters()}, and give --names names.json"
)
"""What to do when nothing tells the names."""

BUFFERS = (
    *("running_mean", "running_var", "num_batches_tracked"),
    *("position_ids", "relative_position_index", "attn_mask"),
)
"""Ends of the names of tensors that no optimizer moves."""

CONSTANTS = ("relative_positions_mat",)
"""Ends of the names of parameters that hold no weight and get no gradient: they stand in the groups
of PyTorch's optimizer, without moments, and have no counterpart."""

_Children = Mapping[str, tuple[str, ...]]
_VIT: _Children = {"": ("cls_token", "pos_embed", "patch_embed", "blocks", "norm", "head")}
_SWIN_TOP = ("patch_embed", "layers", "norm", "head")
_CONV_SELF = (
    *("convbert_key_depthwise", "convbert_key_pointwise", "lightweight_kernel", "convolution"),
    *("query_linear", "key_linear", "query_pointwise", "key_pointwise", "query_conv", "key_conv"),
    *("query", "key", "value_linear", "value_pointwise", "value_conv", "value"),
)
_CHILDREN: Mapping[tuple[str, str], _Children] = {
    ("conv_bert_original", "conv_bert"): {"bert.encoder.layer.{}.attention.self": _CONV_SELF},
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


def _decayed_by_name(name: str, _: Sequence[int]) -> bool:
    return not any(part in name for part in ("bias", "LayerNorm.weight"))


def _decayed_by_shape(name: str, shape: Sequence[int]) -> bool:
    return len(shape) > 1 and not name.endswith(".bias")


def _decayed_unless_one_axis(name: str, shape: Sequence[int]) -> bool:
    return len(shape) != 1 and not name.endswith(".bias")


_RULES: Mapping[str, tuple[Callable[[str, Sequence[int]], bool], bool]] = {
    "by name, decayed first (transformers)": (_decayed_by_name, True),
    "by shape, not decayed first (timm)": (_decayed_by_shape, False),
    "by shape, not decayed first (the original image release)": (_decayed_unless_one_axis, False),
    "by shape, decayed first": (_decayed_unless_one_axis, True),
}
"""How trainings split parameters: (does weight decay apply, are those first)."""


def trained_names(plan: ConversionPlan, order: Sequence[str] | None) -> list[str]:
    """The parameters of a model in registration order.

    Args:
        plan: from PyTorch to Paddle.
        order: every name of a file that keeps the model's order; None for safetensors, which
            sorts by name.

    Raises:
        ValueError: weights that the plan leaves out.
    """
    lost = [name for name in plan.ignored if not name.endswith((*BUFFERS, *CONSTANTS))]
    if lost:
        raise ValueError(
            f"{plan.model} has no place for {some(lost)}: what was learnt about them is lost; "
            "convert the weights alone (tools/convert_weights.py), or name the model that was "
            "trained"
        )
    known = registration_order(plan)
    if order is None:
        return known
    converted = set(known)
    return [name for name in order if name in converted or name.endswith(CONSTANTS)]


def read_names(path: Path) -> list[list[str]]:
    """Read a JSON list of groups, each a list of names.

    Raises:
        ValueError: not that.
    """
    groups = read_json(path, object)
    good = isinstance(groups, list) and all(isinstance(group, list) for group in groups)
    if not good or not all(isinstance(name, str) for group in groups for name in group):
        raise ValueError(f"{path}: expected a list of parameter groups, each a list of names")
    return groups


def frozen_names(plan: ConversionPlan) -> set[str]:
    """Parameters that some models train and others hold fixed: position tables."""
    return {entry.source for entry in plan.entries if entry.kind == "table"}


def find_names(
    state_dict: Mapping[str, Any],
    parameters: Sequence[str],
    shapes: Shapes,
    frozen: Collection[str] = (),
) -> tuple[list[list[str]], str]:
    """Names of every group of an optimizer's state dict.

    Args:
        state_dict: ``optimizer.state_dict()``.
        parameters: the model's, in registration order.
        shapes: weight -> shape.
        frozen: parameters that may be left out all together.

    Returns:
        The names, and the rule in words.

    Raises:
        ValueError: no rule fits, or several that differ.
    """
    groups = param_groups(state_dict)
    named = group_names(state_dict)
    if named is not None:
        return named, "named by the optimizer"
    candidates = _candidates(parameters, shapes)
    if frozen:
        trained = [name for name in parameters if name not in frozen]
        held = ", positions fixed"
        candidates |= {f"{r}{held}": m for r, m in _candidates(trained, shapes).items()}
    fitting = {r: made for r, made in candidates.items() if _fits(state_dict, made, shapes)}
    first = next(iter(fitting), "")
    if fitting and all(made == fitting[first] for made in fitting.values()):
        return fitting[first], first
    count = sum(len(group["params"]) for group in groups)
    what = (
        f"{len(fitting)} rules fit and differ ({'; '.join(fitting)})"
        if fitting
        else f"no known rule fits ({count} parameters in {len(groups)} groups, the weights have "
        f"{len(parameters)})"
    )
    raise ValueError(f"the optimizer numbers its parameters and {what}: {HOW}")


def ordered_groups(
    decays: Mapping[str, float], parameters: Sequence[str], *, decayed_first: bool = True
) -> list[list[str]]:
    """Two groups, each in registration order; an empty one is left out.

    Args:
        decays: trained weight -> coefficient.
        parameters: the model's, in registration order.
        decayed_first: as transformers groups; False as timm does.
    """
    made: dict[bool, list[str]] = {decayed_first: [], not decayed_first: []}
    for name in parameters:
        if name in decays:
            made[bool(decays[name])].append(name)
    return [group for group in made.values() if group]


def _candidates(parameters: Sequence[str], shapes: Shapes) -> dict[str, list[list[str]]]:
    found = {"one group": [list(parameters)]}
    for rule, (decays, first) in _RULES.items():
        parts = [
            [n for n in parameters if decays(n, shapes[n]) is wanted] for wanted in (True, False)
        ]
        found[rule] = parts if first else parts[::-1]
    return found


def _fits(state_dict: Mapping[str, Any], made: Sequence[Sequence[str]], shapes: Shapes) -> bool:
    groups = state_dict["param_groups"]
    if [len(group) for group in made] != [len(group["params"]) for group in groups]:
        return False
    for group, names in zip(groups, made, strict=True):
        for index, name in zip(group["params"], names, strict=True):
            held = state_dict["state"].get(index, {})
            tensors = [v for k, v in held.items() if k != "step" and hasattr(v, "shape")]
            if any(tuple(tensor.shape) != tuple(shapes[name]) for tensor in tensors):
                return False
    return True


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
