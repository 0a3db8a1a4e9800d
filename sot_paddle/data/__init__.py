"""Raw files to batches: GLUE readers, tokenizers, corpus; image folders and augmentation.

Everything but :mod:`sot_paddle.data.splits` and :mod:`sot_paddle.data.stored.states` does
without Paddle, so that the PyTorch reference can be fed the very same batches.
"""
