"""The user's cache folder."""

from __future__ import annotations

import os
from pathlib import Path


def default_cache_dir() -> Path:
    """``$SOT_PADDLE_CACHE``, else ``$XDG_CACHE_HOME/sot_paddle``, else ``~/.cache/sot_paddle``."""
    own = os.environ.get("SOT_PADDLE_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sot_paddle"
