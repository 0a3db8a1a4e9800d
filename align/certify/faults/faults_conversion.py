"""Faults of weights that a user converted."""

from __future__ import annotations

from align.certify.planting import edited
from align.certify.scene import Fault

_PORT = "align.certify.ports.port_converting"
_TEXT, _VISION, _PACKED = (f"{_PORT}:{name}" for name in ("distilbert", "resnet", "encoder"))

FAULTS = (
    Fault(
        "converted_not_transposed",
        "conversion",
        "converted_text",
        "weights",
        "*.weight",
        r"transposed",
        edited(
            _TEXT,
            'name.endswith("weight") and array.ndim == 2',
            'name.endswith("weight") and array.ndim == 2 and array.shape[0] != array.shape[1]',
        ),
    ),
    Fault(
        "converted_scale_and_shift_swapped",
        "conversion",
        "converted_text",
        "weights",
        "*norm*",
        r"swapped with '.*norm1\.bias'",
        edited(
            _TEXT,
            "        found[name] = array",
            "        if 'norm1' in name:\n"
            "            stem, _, leaf = name.rpartition('.')\n"
            '            name = f\'{stem}.{dict(weight="bias", bias="weight")[leaf]}\'\n'
            "        found[name] = array",
        ),
    ),
    Fault(
        "converted_query_and_key_swapped",
        "conversion",
        "converted_text",
        "weights",
        "*attention.*",
        r"swapped with '.*key\.weight'",
        edited(
            _TEXT,
            "for theirs, ours in PARTS.items():",
            "for theirs, ours in {**PARTS, 'q_lin': 'key', 'k_lin': 'query'}.items():",
        ),
    ),
    Fault(
        "converted_packed_order",
        "conversion",
        "converted_encoder",
        "weights",
        "*_proj.*",
        r"swapped with '.*k_proj\.weight'",
        edited(_PACKED, 'zip("qkv"', 'zip("kqv"'),
    ),
    Fault(
        "converted_never_loaded",
        "conversion",
        "converted_text",
        "weights",
        "words.weight",
        r"never loaded",
        edited(
            _TEXT,
            "    return found",
            "    return {n: a for n, a in found.items() if n != 'words.weight'}",
        ),
    ),
    Fault(
        "converted_bias_never_loaded",
        "conversion",
        "converted_vision",
        "weights",
        "fc.bias",
        r"never loaded",
        edited(
            _VISION,
            "    return found",
            "    return {n: a for n, a in found.items() if n != 'fc.bias'}",
        ),
    ),
    Fault(
        "converted_rounded_to_float16",
        "conversion",
        "converted_vision",
        "weights",
        "*",
        r"float16",
        edited(
            _VISION,
            'found[name] = array.T if name == "fc.weight" else array',
            'array = array.astype("float16").astype("float32")\n'
            '        found[name] = array.T if name == "fc.weight" else array',
        ),
    ),
    Fault(
        "converted_running_statistics_swapped",
        "conversion",
        "converted_vision",
        "weights",
        "*_mean",
        r"swapped with '.*_variance'",
        edited(
            _VISION,
            'name.replace("running_mean", "_mean").replace("running_var", "_variance")',
            'name.replace("running_mean", "_variance").replace("running_var", "_mean")',
        ),
    ),
    Fault(
        "converted_running_statistics_missing",
        "conversion",
        "converted_vision",
        "weights",
        "*_mean",
        r"never loaded",
        edited(
            _VISION,
            'if name.endswith("num_batches_tracked"):',
            'if name.endswith(("num_batches_tracked", "running_mean", "running_var")):',
        ),
    ),
    Fault(
        "converted_positions_shifted",
        "conversion",
        "converted_text",
        "weights",
        "positions.weight",
        r"shifted round by 1|order 15, 0, 1",
        edited(
            _TEXT,
            "        found[name] = array",
            "        found[name] = np.roll(array, name.startswith('positions'), axis=0)",
        ),
    ),
    Fault(
        "converted_vocabulary_permuted",
        "conversion",
        "converted_text",
        "weights",
        "words.weight",
        r"in another order",
        edited(
            _TEXT,
            "        found[name] = array",
            "        order = np.random.default_rng(3).permutation(len(array))\n"
            "        found[name] = array[order] if name.startswith('words') else array",
        ),
    ),
    Fault(
        "converted_kernel_flipped",
        "conversion",
        "converted_vision",
        "weights",
        "*conv*",
        r"flipped along axis 3",
        edited(
            _VISION,
            'found[name] = array.T if name == "fc.weight" else array',
            "array = array[..., ::-1] if array.ndim == 4 else array\n"
            '        found[name] = array.T if name == "fc.weight" else array',
        ),
    ),
    Fault(
        "converted_layers_swapped",
        "conversion",
        "converted_text",
        "weights",
        "layers.?.*",
        r"swapped with 'layers\.1",
        edited(
            _TEXT,
            '.replace("transformer.layer", "layers")',
            '.replace("transformer.layer.0", "layers.x")'
            '.replace("transformer.layer.1", "layers.0").replace("layers.x", "layers.1")',
        ),
    ),
    Fault(
        "converted_kernel_channels_exchanged",
        "conversion",
        "converted_vision",
        "weights",
        "*conv*",
        r"order \(1, 0, 2, 3\)",
        edited(
            _VISION,
            "found[name] = array",
            "square = array.ndim == 4 and array.shape[0] == array.shape[1]\n"
            "        array = array.transpose(1, 0, 2, 3) if square else array\n"
            "        found[name] = array",
        ),
    ),
    Fault(
        "converted_rounded_to_bfloat16",
        "conversion",
        "converted_text",
        "weights",
        "*",
        r"rounded to bfloat16",
        edited(
            _TEXT,
            "        found[name] = array",
            "        bits = np.array(array, order='C').view('uint32') & np.uint32(0xFFFF0000)\n"
            "        found[name] = bits.view('float32')",
        ),
    ),
    Fault(
        "converted_layer_never_loaded",
        "conversion",
        "converted_text",
        "weights",
        "layers.1.*",
        r"never loaded",
        edited(
            _TEXT,
            "    return found",
            "    return {n: a for n, a in found.items() if 'layers.1' not in n}",
        ),
    ),
    Fault(
        "converted_embedding_scaled",
        "conversion",
        "converted_text",
        "weights",
        "words.weight",
        r"scaled: 4\.89898 x",
        edited(
            _TEXT,
            "        found[name] = array",
            "        scale = 24**0.5 if name.startswith('words') else 1.0\n"
            "        found[name] = (array * scale).astype('float32')",
        ),
    ),
)
