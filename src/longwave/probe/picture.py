"""Pictures are an extra: drawn into files, without a screen."""

from pathlib import Path
from typing import Any

from longwave.errors import UserError


def pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as missing:
        raise UserError("the picture needs matplotlib: pip install 'longwave[plots]'") from missing
    matplotlib.use("agg")
    return __import__("matplotlib.pyplot").pyplot


def save(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot().close(figure)
    return path
