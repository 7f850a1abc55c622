"""Where weights are: on this disk, or on the hub, whose cache and HF_HUB_OFFLINE are honoured."""

import re
from pathlib import Path

from longwave.errors import UserError

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SMALL = ["*.json"]
KINDS = (["*.safetensors"], ["*.bin"], ["*.pth"])  # the first that is there is taken


def fetch(path: str | Path) -> Path:
    """The path itself where it exists; a hub id becomes the folder of its snapshot."""
    found = Path(path)
    if found.exists():
        return found
    if not isinstance(path, str) or not HUB_ID.fullmatch(path):
        raise UserError(f"no model at {path}: there is no such file or folder")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as missing:
        raise UserError(f"there is no folder {path}; as a hub id it needs: pip install huggingface_hub") from missing
    try:
        for kind in KINDS:
            folder = Path(snapshot_download(path, allow_patterns=[*SMALL, *kind]))
            if any(folder.glob(kind[0])):
                return folder
    except Exception as problem:  # the hub's own errors are of many kinds
        why = (str(problem) or type(problem).__name__).strip().splitlines()[0]
        raise UserError(f"there is no folder {path}, and the hub does not give it: {why}") from problem
    raise UserError(f"{path} on the hub holds no safetensors, .bin or .pth")
