"""Pretrained feature extractors by their published names; weights are files that are on this disk already.

features = lw.backbone("resnet50", weights="DEFAULT", frozen=True)
features(images)[0]            # [B, 2048]
features.encode(images)        # [B, 49, 2048]: the grid, for images of 224 x 224
"""

import hashlib
from pathlib import Path

import torch

from longwave import models
from longwave.errors import UserError, choose
from longwave.models.model import Model
from longwave.models.weights.source import check_tensors, open_source

PUBLISHED = {  # as torchvision names them and their files, which end with the first digits of their SHA-256
    "resnet18": {"IMAGENET1K_V1": "resnet18-f37072fd.pth"},
    "resnet50": {"IMAGENET1K_V1": "resnet50-0676ba61.pth", "IMAGENET1K_V2": "resnet50-11ad3fa6.pth"},
}
COUNTER = "num_batches_tracked"  # old files lack it, and nothing depends on it


def backbone(name: str, *, weights: str | None = None, frozen: bool = False, folder: str | Path | None = None) -> Model:
    """A published network without its classes: an image becomes its features.

    `weights` is None for random ones, "DEFAULT" for the best, or a name such as "IMAGENET1K_V1". Their file lies in
    `folder`; None: where torch.hub keeps its checkpoints.
    """
    files = choose("backbone", name, PUBLISHED)
    model = models.create(name, n_classes=None, frozen=frozen)
    if weights is not None:
        file = choose(f"weights of {name}", weights, {**files, "DEFAULT": list(files.values())[-1]})
        place = Path(torch.hub.get_dir()) / "checkpoints" if folder is None else Path(folder)
        _read(model, place / file)
    return model.eval()


def _read(model: Model, path: Path) -> None:
    if not path.is_file():
        raise UserError(f"there is no {path}: put torchvision's file of that name there, or name its folder=")
    promised = path.stem.rpartition("-")[2]
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if not found.startswith(promised):
        raise UserError(f"{path} is damaged: its SHA-256 begins with {found[:8]}, not with {promised}")
    source = open_source(path)
    for each in [each for each in source.entries if each.endswith(COUNTER) or each.startswith("fc.")]:
        del source.entries[each]
    wanted = {each: tuple(t.shape) for each, t in model.state_dict().items() if not each.endswith(COUNTER)}
    check_tensors(source, wanted)
    model.load_state_dict({each: source.get(each) for each in wanted}, strict=False)
