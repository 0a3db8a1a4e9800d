"""Alignment of any user's pair: a PyTorch module and the Paddle layer that ports it.

`align.compare` is the entry; `docs/align_your_own.md` is the walk-through. Only `on_torch.py` and
`on_paddle.py` (with the modules that use them) import a framework, and only when a pair is run.
"""
