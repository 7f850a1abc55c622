"""Graphs: what is said at the hub, or what papers are about.

Without data: nodes of random colours, each heard by others, of which one node hears most; what is its colour? It stands
last where nodes are read by their degree, and anywhere where they are not.

With data: one graph of papers, some of which say their field in training; what are the others' (Yang et al. 2016, the
split of Planetoid: 20 papers a field to train, 500 for validation, 1000 for test).
"""

import zlib
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.data.graphs import citations
from longwave.errors import UserError, check_positive
from longwave.models.graph_model import GraphModel
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import Generated


class Graph(Generated):
    preset = "graph_mamba"
    decides = ("n_classes", "d_input", "head")
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    plan: ClassVar[dict[str, Any]] = {"batch": 32, "lr": 1e-2, "warmup": 10, "steps": 200}
    model: ClassVar[dict[str, Any]] = {"d_model": 32, "n_layers": 2}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # cora.npz or citeseer.npz; None: graphs with a hub
        nodes: int = 16,  # of a graph with a hub
        colours: int = 4,  # that a node of it can have
    ) -> None:
        super().__init__(context, batch, seed, data=data, nodes=nodes, colours=colours)
        check_positive(nodes=nodes - 1, colours=colours - 1)
        self.nodes, self.colours = nodes, colours
        self.papers = None if data is None else citations(data)

    def fits(self) -> dict[str, Any]:
        if self.papers is None:
            return {"n_classes": self.colours, "d_input": self.colours, "head": "classify"}
        return {"n_classes": int(self.papers.label.max()) + 1, "d_input": self.papers.nodes.shape[1], "head": "tag"}

    def check(self, model: Any) -> None:
        if not isinstance(model, GraphModel):
            raise UserError(f"graphs are for a model of graphs, not a {type(model).__name__}: --model graph_mamba")

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        """Graphs in which one node hears no other, one hears one, and so on: nodes, edges, the colour of the last."""
        colour = random.integers(self.colours, size=(rows, self.nodes))
        hears = random.permuted(np.tile(np.arange(self.nodes), (rows, 1)), axis=1)
        nearness = random.random((rows, self.nodes, self.nodes)) + 2 * np.eye(self.nodes)  # itself comes last
        edges = nearness.argsort(-1).argsort(-1) < hears[..., None]
        target = np.take_along_axis(colour, hears.argmax(1)[:, None], 1)[:, 0]
        return np.eye(self.colours, dtype=np.float32)[colour], edges.astype(np.float32), target

    def batch(self, step: int) -> tuple[Tensor, ...]:
        return super().batch(step) if self.papers is None else self._graph("train")

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        nodes, edges, target = batch
        return model.loss(nodes, edges, target, reduction="sum", **how), (target != IGNORE).sum()

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        lost, right, count = 0.0, 0, 0
        for nodes, edges, target in batches:
            asked = target != IGNORE
            logits, wanted = model(nodes, edges)[0][asked].float(), target[asked]
            lost += float(F.cross_entropy(logits, wanted, reduction="sum"))
            right += int((logits.argmax(-1) == wanted).sum())
            count += len(wanted)
        return {"loss": lost / count, "accuracy": right / count}

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        return super().validate(model, quick=quick) if self.papers is None else self._judged(model, "valid")

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        return super().test(model) if self.papers is None else self._judged(model, "test")

    def describe(self) -> dict[str, Any]:
        if self.papers is None:
            return super().describe()
        known = zlib.crc32(self.papers.label.tobytes(), zlib.crc32(self.papers.train.tobytes()))
        return {**super().describe(), "source": f"{len(self.papers.nodes):,} papers, {len(self.papers.train)} of them "
                "to learn from", "mark": known}  # fmt: skip

    def _judged(self, model: Any, part: str) -> dict[str, float]:
        device = next(model.parameters()).device
        return self.judge(model, [tuple(t.to(device) for t in self._graph(part))])

    def _graph(self, part: str) -> tuple[Tensor, ...]:
        """All papers and links, and the fields of this part's."""
        assert self.papers is not None
        target = np.full(len(self.papers.nodes), IGNORE)
        some = getattr(self.papers, part)
        target[some] = self.papers.label[some]
        return tuple(torch.from_numpy(each)[None] for each in (self.papers.nodes, self.papers.edges, target))
