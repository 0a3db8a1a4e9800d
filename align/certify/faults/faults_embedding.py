"""Faults of embeddings, of tokens that are picked, and of the backward pass."""

from __future__ import annotations

from align.certify import spoiling
from align.certify.planting import changed, edited
from align.certify.scene import Fault

_DISTIL = "distilbert_paddle"
_ATTEND = f"{_DISTIL}:Attention.forward"
_BERT = "sot_paddle.backbones.bert:BertEncoder.forward"
_LANGUAGE = "align.certify.ports.port_masked_language:MaskedLanguage"

EMBEDDINGS = (
    Fault(
        "positions_off_by_one",
        "model",
        "distilbert",
        "forward",
        "positions",
        r"1 too late|off by",
        edited(
            f"{_DISTIL}:DistilBert.forward",
            "paddle.arange(input_ids.shape[1])",
            "paddle.arange(1, input_ids.shape[1] + 1)",
        ),
    ),
    Fault(
        "token_types_ignored",
        "model",
        "bert",
        "forward",
        "bert.embeddings.token_type_embeddings",
        r"\[0, 0, 0, 0, 0|row 0 everywhere",
        edited(_BERT, "token_type_ids=token_type_ids", "token_type_ids=None"),
    ),
    Fault(
        "padding_row_set_to_zero",
        "model",
        "distilbert",
        "forward",
        "words",
        r"padding_idx",
        edited(
            f"{_DISTIL}:WordEmbedding.forward", "rows.detach(), rows)", "0 * rows.detach(), rows)"
        ),
    ),
    Fault(
        "padding_row_trained",
        "model",
        "distilbert",
        "backward",
        "words",
        r"padding_idx.*Paddle trains it",
        edited(f"{_DISTIL}:WordEmbedding.forward", "rows.detach(), rows)", "rows, rows)"),
    ),
    Fault(
        "last_token_instead_of_first",
        "model",
        "bert",
        "forward",
        "(model)",
        r"another (index|position)|index: Paddle takes",
        edited(_BERT, "Features(hidden[:, 0],", "Features(hidden[:, -1],"),
    ),
    Fault(
        "class_token_at_the_end",
        "model",
        "vit_sum",
        "forward",
        "*",
        r"order of the parts|\(roll\)",
        edited(
            "sot_paddle.backbones.vit:VisionTransformer.features", "[cls, words]", "[words, cls]"
        ),
    ),
    Fault(
        "position_embedding_missing",
        "model",
        "vit_sum",
        "forward",
        "*",
        r"pos_embed is not (used|added)",
        edited("sot_paddle.backbones.vit:VisionTransformer.features", " + self.pos_embed", ""),
    ),
    Fault(
        "positions_backwards",
        "model",
        "distilbert",
        "forward",
        "positions",
        r"\[6, 5, 4",
        edited(
            f"{_DISTIL}:DistilBert.forward",
            "paddle.arange(input_ids.shape[1])",
            "paddle.arange(input_ids.shape[1] - 1, -1, -1)",
        ),
    ),
)

GRADIENTS = (
    Fault(
        "value_detached",
        "model",
        "distilbert",
        "backward",
        "layers.?.attention",
        r"graph is cut there|cuts the graph",
        edited(_ATTEND, "axis=-1) @ v ", "axis=-1) @ v.detach() "),
    ),
    Fault(
        "gradient_tripled_in_a_layer_without_parameters",
        "model",
        "vit_sum",
        "backward",
        "blocks.1.mlp.drop*",
        r"is 3\.000 x",
        changed(spoiling.tripled_gradient("blocks.1.mlp.drop")),
    ),
    Fault(
        "straight_through_relu",
        "model",
        "resnet",
        "backward",
        "layer2.0.act1",
        r"unchanged",
        changed(spoiling.straight_through("layer2.0.act1")),
    ),
    Fault(
        "parameter_frozen",
        "model",
        "distilbert",
        "forward",
        "layers.1.lin2",
        r"trained on one side only",
        changed(spoiling.frozen("layers.1.lin2.weight")),
    ),
    Fault(
        "tied_weights_untied",
        "model",
        "tied",
        "forward",
        "*",
        r"one tensor on one side",
        edited(
            f"{_LANGUAGE}.__init__",
            "Projection(encoder.words.weight)",
            "Projection(self.create_parameter(encoder.words.weight.shape))",
        ),
    ),
)

FAULTS = (*EMBEDDINGS, *GRADIENTS)
