"""Models of graphs."""

from typing import Literal

from longwave.spec import Spec


def graph_mamba(
    *,
    n_classes: int,  # what there is to choose from
    d_input: int,  # numbers a node
    d_model: int = 64,  # width
    n_layers: int = 3,  # layers
    mixer: str | Spec = "mamba",  # that reads the nodes
    order: Literal["degree", "random"] = "degree",  # of the nodes
    head: Literal["tag", "classify"] = "classify",  # a class a node, or a graph
) -> Spec:
    """Graph-Mamba (Wang et al. 2024): nodes as a sequence, by degree, and the mean of each one's neighbours."""
    top = Spec("tag", n_classes=n_classes) if head == "tag" else Spec("classify", n_classes=n_classes, pool="last")
    return Spec("graph_model", d_model=d_model, d_input=d_input, n_layers=n_layers, mixer=mixer, order=order, head=top)
