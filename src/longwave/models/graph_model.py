"""Graph-Mamba: nodes in the order of their degree are a sequence, beside what each hears from its neighbours.

    local  = W mean of x over the neighbours of a node
    global = mixer(x in the order of degree), put back        the last nodes, those of most neighbours, see all others
    x      = x + local + global;    x = x + FFN(x)            each of what was normed

Nodes of equal degree stand in an order drawn anew in training, so that none is learned; in eval mode their numbers
scatter them. Graphs of different size are rows of different length; edges are a matrix a graph, [i, j] where j is heard
by i.

Wang et al. 2024, "Graph-Mamba", sections 3.2 and 3.3. Deviations: the mean over neighbours is the local part, where
the paper has GatedGCN; one order in eval mode, where the paper averages five.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from longwave.errors import check_positive
from longwave.mixer import valid
from longwave.mixers import create
from longwave.models.heads import Classify, make_head
from longwave.models.model import Model
from longwave.ops.ragged import zero_pads
from longwave.parts.linear import Linear
from longwave.parts.norm import make_norm
from longwave.spec import Spec

Nodes = Float[Tensor, "B N D"]
GOLDEN = (5**0.5 - 1) / 2  # whose multiples are spread evenly, whatever their number


class Layer(nn.Module):
    def __init__(self, d_model: int, mixer: Spec | str) -> None:
        super().__init__()
        self.norm, self.norm_ffn = make_norm("layer", d_model), make_norm("layer", d_model)
        self.local = Linear(d_model, d_model)
        self.mixer, self.ffn = create(mixer, d_model), create("ffn", d_model, kind="gelu")

    def forward(self, x: Nodes, heard: Float[Tensor, "B N N"], order: Int[Tensor, "B N"], lengths: Tensor) -> Nodes:
        h = self.norm(x)
        at = order[..., None].expand_as(h)
        y, _ = self.mixer(h.gather(1, at), None, lengths)
        x = x + self.local(heard @ h) + torch.zeros_like(h).scatter(1, at, y)
        return zero_pads(x + self.ffn(self.norm_ffn(x))[0], lengths)


class GraphModel(Model):
    causal = False

    def __init__(
        self,
        *,
        d_model: int,
        d_input: int,  # numbers a node
        head: Spec,  # tag: a class a node; classify: a class a graph
        n_layers: int = 3,  # layers
        mixer: Spec | str = "mamba",  # that reads the nodes, the last of which see all others
        order: Literal["degree", "random"] = "degree",  # of the nodes
    ) -> None:
        super().__init__()
        check_positive(d_model=d_model, d_input=d_input, n_layers=n_layers)
        self.order = order
        self.embed = Linear(d_input, d_model)
        self.layers = nn.ModuleList(Layer(d_model, mixer) for _ in range(n_layers))
        self.norm = make_norm("layer", d_model)
        self.head = make_head(head, d_model)
        nn.init.normal_(self.embed.weight, std=1 / math.sqrt(d_input))

    def ordered(self, edges: Float[Tensor, "B N N"], lengths: Int[Tensor, " B"]) -> Int[Tensor, "B N"]:
        """The nodes of each graph by degree, the greatest last, pads behind them."""
        at = torch.arange(edges.shape[1], device=edges.device)
        drawn = torch.rand_like(edges[..., 0]) if self.training else (GOLDEN * at % 1).expand(len(edges), -1)
        rank = edges.sum(-1) if self.order == "degree" else 0
        return (rank + 0.5 * drawn).masked_fill(~valid(edges, lengths), math.inf).argsort(dim=1, stable=True)

    def hidden(  # type: ignore[override]
        self, nodes: Float[Tensor, "B N F"], edges: Shaped[Tensor, "B N N"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Nodes, Int[Tensor, "B N"]]:
        """What is known of every node, and the order in which they were read."""
        if lengths is None:
            lengths = torch.full((len(nodes),), nodes.shape[1], device=nodes.device)
        real = valid(nodes, lengths)
        linked = torch.where(real[:, None] & real[..., None], edges.to(nodes), 0)
        heard = linked / linked.sum(-1, keepdim=True).clamp_min(1)
        order = self.ordered(linked, lengths)
        x = zero_pads(self.embed(zero_pads(nodes, lengths)), lengths)
        for layer in self.layers:
            x = layer(x, heard, order, lengths)
        return self.norm(x), order

    def forward(
        self, nodes: Float[Tensor, "B N F"], edges: Shaped[Tensor, "B N N"], lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Tensor, None]:
        """A class a node, in the order in which they came; or one a graph, from the nodes in the order of reading."""
        return self.head(self._of_head(nodes, edges, lengths), None, lengths)[0], None

    def loss(
        self, nodes: Tensor, edges: Tensor, target: Tensor, lengths: Int[Tensor, " B"] | None = None, **how: str
    ) -> Tensor:
        return self.head.loss(self._of_head(nodes, edges, lengths), target, lengths, **how)

    def _of_head(self, nodes: Tensor, edges: Tensor, lengths: Tensor | None) -> Tensor:
        h, order = self.hidden(nodes, edges, lengths)
        return h.gather(1, order[..., None].expand_as(h)) if isinstance(self.head, Classify) else h
