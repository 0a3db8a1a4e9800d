"""A full-size pair: transformers' BERT-base against this project's, random weights, 2 x 32 tokens.

python -m align spec docs/examples/bert_base_pair.py
"""

import numpy as np

BATCH, LENGTH, CLASSES, VOCABULARY = 2, 32, 3, 30522
OPTIMIZER = "adamw"
LOSS = "cross_entropy"
STEPS = 5
_LAYER = "bert.encoder.layers.{}"
WEIGHTS = {
    "map": {
        "bert.embeddings.LayerNorm": "bert.embeddings.layer_norm",
        "bert.encoder.layer.{}": _LAYER,
        "bert.encoder.layer.{}.attention.self.query": f"{_LAYER}.self_attn.q_proj",
        "bert.encoder.layer.{}.attention.self.key": f"{_LAYER}.self_attn.k_proj",
        "bert.encoder.layer.{}.attention.self.value": f"{_LAYER}.self_attn.v_proj",
        "bert.encoder.layer.{}.attention.output.dense": f"{_LAYER}.self_attn.out_proj",
        "bert.encoder.layer.{}.attention.output.LayerNorm": f"{_LAYER}.norm1",
        "bert.encoder.layer.{}.intermediate.dense": f"{_LAYER}.linear1",
        "bert.encoder.layer.{}.output.dense": f"{_LAYER}.linear2",
        "bert.encoder.layer.{}.output.LayerNorm": f"{_LAYER}.norm2",
        "bert.pooler.dense": "head.dense",
        "classifier": "head.cls_fc",
    },
    # what these three return is cut differently: positions once or for every sample, pooled or not
    "modules": {"bert.embeddings.position_embeddings": None, "bert.encoder": None, "bert": None},
}


def torch_module():
    """BertForSequenceClassification in its default size (base), float32 as a checkpoint is."""
    import sot_torch_ref  # noqa: F401  isort: skip (transformers beside a CPU build of torch)
    from transformers import AutoModelForSequenceClassification, BertConfig

    config = BertConfig(num_labels=CLASSES)
    return AutoModelForSequenceClassification.from_config(config, torch_dtype="float32")


def paddle_layer():
    """The same of this project."""
    import sot_paddle

    return sot_paddle.create_model("bert_base", num_classes=CLASSES)


def inputs():
    """Padded sentences of token numbers."""
    rng = np.random.default_rng(0)
    lengths = np.linspace(LENGTH, LENGTH // 2, BATCH).astype(int)
    mask = (np.arange(LENGTH)[None] < lengths[:, None]).astype("int64")
    return {
        "input_ids": rng.integers(1000, VOCABULARY, (BATCH, LENGTH)) * mask,
        "token_type_ids": np.zeros((BATCH, LENGTH), "int64"),
        "attention_mask": mask,
    }


def labels():
    """One class for each sentence."""
    return np.arange(BATCH) % CLASSES
