"""ResNet (He et al. 2016) as transformers has it; torchvision's names are ours (see models.backbones)."""

from typing import Any

from longwave.errors import UserError
from longwave.models.resnet import ResNet
from longwave.models.weights.config import Config
from longwave.models.weights.families.vit import labels
from longwave.models.weights.names import Names
from longwave.spec import Spec

TYPES = {"resnet": "ResNetForImageClassification"}
PREFIX, OUT = "resnet.", "classifier.1.weight"


def spec(config: Config) -> Spec:
    config.must("hidden_act", "relu")
    config.must("downsample_in_first_stage", False)
    config.must("downsample_in_bottleneck", False)
    config.must("layer_type", "bottleneck", "basic")
    config.ignore("out_features", "out_indices", "stage_names")
    kind = config.take("layer_type", "bottleneck")
    depths, widths = (_sizes(config, key) for key in ("depths", "hidden_sizes"))
    classes = config.shape("classifier.1.weight")
    grow = 4 if kind == "bottleneck" else 1
    if any(width % grow for width in widths):
        raise UserError(f"{config.where}: 'hidden_sizes' of bottlenecks are multiples of 4, got {widths}")
    return Spec("resnet", kind=kind, depths=depths, widths=[width // grow for width in widths],
                stem=config.size("embedding_size", 64), channels=config.size("num_channels", 3),
                n_classes=classes[0] if classes else None)  # fmt: skip


def _sizes(config: Config, key: str) -> list[int]:
    sizes = config.take(key)
    if not isinstance(sizes, list) or not sizes or not all(type(n) is int and 0 < n < 1 << 16 for n in sizes):
        raise UserError(f"{config.where}: {key!r} must be a list of sizes, got {str(sizes)[:40]}")
    return sizes


def config(model: ResNet) -> dict[str, Any]:
    options = model.spec.options
    grow = 4 if options["kind"] == "bottleneck" else 1
    return dict(
        architectures=["ResNetForImageClassification" if model.fc else "ResNetModel"], layer_type=options["kind"],
        depths=list(options["depths"]), hidden_sizes=[grow * width for width in options["widths"]],
        embedding_size=model.conv1.out_channels, num_channels=model.conv1.in_channels, hidden_act="relu",
        downsample_in_first_stage=False, downsample_in_bottleneck=False, **labels(model.fc),
    )  # fmt: skip


def names(model: ResNet) -> Names:
    found = {}
    for name in model.state_dict():
        *path, leaf = name.split(".")
        part = "convolution" if path[-1].startswith("conv") or path[-1] == "0" else "normalization"
        if path[0] == "fc":
            theirs = "classifier.1"
        elif len(path) == 1:
            theirs = f"{PREFIX}embedder.embedder.{part}"
        else:
            block = f"{PREFIX}encoder.stages.{int(path[0].removeprefix('layer')) - 1}.layers.{path[1]}"
            theirs = (
                f"{block}.shortcut.{part}"
                if path[2] == "downsample"
                else f"{block}.layer.{int(path[2][-1]) - 1}.{part}"
            )
        found[name] = f"{theirs}.{leaf}"
    return found
