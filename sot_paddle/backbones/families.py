"""The language models as data: what they are called, their sizes, and where their encoder is.

No framework is imported: an encoder's module is, when a model is built.
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sot_paddle.config import EncoderConfig

if TYPE_CHECKING:
    from paddle import nn


@dataclass(frozen=True, kw_only=True)
class TextBackbone:
    """Everything that the rest of the project must know about a language model."""

    architecture: str  # what ``--model_type`` calls it
    model_type: str  # what its checkpoint's config.json calls it
    original_type: str = ""  # what its original's own checkpoints call it, where that differs
    prefix: str  # first part of the names of its parameters
    encoder_path: str  # module and name of `encoder`
    options_path: str = "sot_paddle.config:EncoderConfig"  # of `options`
    # registry name -> options that differ from the record's defaults, smallest first
    presets: Mapping[str, Mapping[str, Any]]
    plain: str  # pooling of its own classifier
    norms: str  # pattern of the names of its normalisation weights, which do not decay
    # pattern of the beginnings of the names of a layer's parameters, its number the group
    layers: str
    first_token: bool = True  # whether the class token is the first one of a row
    # option -> keys of the config.json, the first of which is read, where they are not its name
    config_keys: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # option -> value in the config.json -> value here, where they differ
    config_values: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    inner_factor: int | None = None  # ``intermediate_size`` / ``hidden_size``, where not stated
    tokenizer: str  # family, a key of `data.tokenizers.FAMILIES`
    positions_after_padding: bool = False  # whether the first position is row ``pad_token_id + 1``

    @property
    def encoder(self) -> Callable[[EncoderConfig], nn.Layer]:
        """Option record -> Layer that maps ids, types and mask to Features."""
        return pkgutil.resolve_name(self.encoder_path)

    @property
    def options(self) -> type[EncoderConfig]:
        """The option record."""
        return pkgutil.resolve_name(self.options_path)

    def position_offset(self, config: EncoderConfig) -> int:
        """Rows of the position table before the one of a row's first token."""
        return config.pad_token_id + 1 if self.positions_after_padding else 0

    def position_limit(self, config: EncoderConfig) -> int:
        """Tokens of a row at most."""
        return config.max_position_embeddings - self.position_offset(config)

    def defaults(self, name: str) -> dict[str, Any]:
        """All options of an encoder of that registry name."""
        return dataclasses.asdict(self.options(**self.presets[name]))

    def preset_for(self, options: Mapping[str, Any], hint: str = "") -> str:
        """The registry name for a checkpoint of these options: the smallest preset as deep.

        That is the deepest where none is. A ``hint`` that begins with a preset's name asks for it.
        """
        depths = {name: self.defaults(name)["num_hidden_layers"] for name in self.presets}
        depth_wanted = options.get("num_hidden_layers", 0)
        deep = [name for name, depth in depths.items() if depth >= depth_wanted]
        deep = deep or list(depths)[-1:]
        named = [name for name in depths if hint.replace("-", "_").startswith(name)]
        return max([deep[0], *named], key=depths.__getitem__)

    def read_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Options of the encoder that a config.json states."""
        stated = {}
        for field in dataclasses.fields(self.options):
            keys = self.config_keys.get(field.name, (field.name,))
            if keys and keys[0] in config:
                value = config[keys[0]]
                spellings = self.config_values.get(field.name, {})
                is_text = isinstance(value, str)
                stated[field.name] = spellings.get(value, value) if is_text else value
        if self.inner_factor and "hidden_size" in stated:
            stated["intermediate_size"] = self.inner_factor * stated["hidden_size"]
        return stated

    def write_config(self, config: EncoderConfig) -> dict[str, Any]:
        """Every option of an encoder, under the keys of its config.json."""
        options = dataclasses.asdict(config)
        options.pop("freeze_encoder")
        stated = {}
        for name, value in options.items():
            key_of_value = {ours: key for key, ours in self.config_values.get(name, {}).items()}
            keys = self.config_keys.get(name, (name,))
            stated.update(dict.fromkeys(keys, key_of_value.get(value, value)))
        return stated


LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
"""Sizes of BERT-large, of which RoBERTa-large and SpanBERT-large have the same."""

BERT = TextBackbone(
    architecture="bert",
    model_type="bert",
    prefix="bert",
    encoder_path="sot_paddle.backbones.paddlenlp_encoder:BertEncoder",
    presets={"bert_base": {}, "bert_large": LARGE},
    plain="pooler",
    norms=r"bert\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"bert\.encoder\.layers\.(\d+)\.",
    tokenizer="wordpiece",
)

_ROBERTA_BASE = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}

ROBERTA = TextBackbone(
    architecture="roberta",
    model_type="roberta",
    prefix="roberta",
    encoder_path="sot_paddle.backbones.paddlenlp_encoder:RobertaEncoder",
    presets={"roberta_base": _ROBERTA_BASE, "roberta_large": {**_ROBERTA_BASE, **LARGE}},
    plain="two_layer",
    norms=r"roberta\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"roberta\.encoder\.layers\.(\d+)\.",
    tokenizer="byte_bpe",
    positions_after_padding=True,
)

_CASED = {"vocab_size": 28996}

SPANBERT = dataclasses.replace(
    BERT,
    architecture="spanbert",
    presets={"spanbert_base": _CASED, "spanbert_large": {**_CASED, **LARGE}},
)
"""Cased BERT of another pre-training, with a checkpoint layout of its own; its config.json speaks
of BERT, and so do the names of its parameters."""

GPT_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "swish": "silu", "silu": "silu"}
"""Activation in a GPT's config.json -> its name here; the last of two is written."""

GPT = TextBackbone(
    architecture="openai-gpt",
    model_type="openai-gpt",
    prefix="gpt",
    encoder_path="sot_paddle.backbones.gpt:GptEncoder",
    presets={
        "openai_gpt": {
            "vocab_size": 40478,
            "type_vocab_size": 1,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-5,
        }
    },
    plain="score",
    norms=r"gpt\.layers\.\d+\.norm[12]\.weight",
    layers=r"gpt\.layers\.(\d+)\.",
    first_token=False,
    config_keys={
        "hidden_size": ("n_embd",),
        "num_hidden_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "intermediate_size": (),
        "max_position_embeddings": ("n_positions",),
        "type_vocab_size": (),
        "hidden_act": ("afn",),
        "layer_norm_eps": ("layer_norm_epsilon",),
        "hidden_dropout_prob": ("resid_pdrop", "embd_pdrop"),
        "attention_probs_dropout_prob": ("attn_pdrop",),
    },
    config_values={"hidden_act": GPT_ACTIVATIONS},
    inner_factor=4,
    tokenizer="word_bpe",
)

CONV_BERT = TextBackbone(
    architecture="conv-bert",
    model_type="conv_bert",
    original_type="bert",
    prefix="conv_bert",
    encoder_path="sot_paddle.backbones.conv_bert:ConvBertEncoder",
    options_path="sot_paddle.backbones.conv_bert:ConvEncoderConfig",
    presets={
        "conv_bert_base": {
            "vocab_size": 30004,
            "max_position_embeddings": 128,
            "pad_token_id": 30002,
        }
    },
    plain="pooler",
    norms=r"conv_bert\..*\b(layer_norm|norm1|norm2)\.weight",
    layers=r"conv_bert\.layers\.(\d+)\.",
    tokenizer="sentencepiece",
)

TEXT_BACKBONES: Mapping[str, TextBackbone] = {
    backbone.architecture: backbone for backbone in (BERT, ROBERTA, SPANBERT, GPT, CONV_BERT)
}
"""Value of ``--model_type`` -> everything about that language model; the first is the default."""
