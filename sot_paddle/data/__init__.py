"""Raw text files to batches: GLUE readers, tokenizer, feature cache, sample order, corpus.

Everything but :mod:`sot_paddle.data.paddle_dataset` needs NumPy only, so that the PyTorch
reference can be fed the very same batches.
"""
