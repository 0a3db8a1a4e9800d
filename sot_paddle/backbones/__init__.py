"""Backbones: one architecture per file, each ending in Features."""

MODEL_TYPES = ("bert", "roberta", "spanbert", "openai-gpt", "conv-bert")
"""Values of ``--model_type``, the first of which is the default; nothing is loaded for them.
:data:`sot_paddle.registry.TEXT_BACKBONES` has what is known of each."""
