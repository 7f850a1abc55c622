"""GLUE: nine tasks of understanding a sentence or two, each with the metric that it is published with.

Wang et al. 2019. Sentences are bytes; a mark stands between two. Models are judged on GLUE's development sets, whose
answers are public; a part of the training sets is their validation.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from longwave.data import glue
from longwave.data.examples import Examples, ragged
from longwave.tasks._classified import Classified, held_out
from longwave.tasks._metrics import METRICS

SEP = 256
MADE, TESTED = 4000, 500  # sentences of a twin


class GLUE(Classified):
    plan: ClassVar[dict[str, Any]] = {"context": 512, "batch": 32, "lr": 1e-3, "warmup": 100}
    model: ClassVar[dict[str, Any]] = {"d_model": 128, "n_layers": 4, "norm": "layer", "dropout": 0.1}
    vocab = SEP + 1

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # GLUE's folder, one inside it for each part; None: sentences made here
        part: glue.Name = "sst2",  # which of the nine
    ) -> None:
        data = data and str(Path(data).expanduser().absolute())
        super().__init__(context, batch, seed, data=data, part=part)
        self.part = glue.PARTS[part]
        self.metric = self.part.metrics[0]
        self.n_classes = len(self.part.classes) or 1
        if data is None:
            train, tests = (
                glue.made(part, MADE, 0),
                [glue.made(part, TESTED, i + 1) for i in range(len(self.part.tests))],
            )
        else:
            train, tests = glue.read(data, part)
        every, (test, *self.others) = self._examples(train), [self._examples(rows) for rows in tests]
        valid, rest = every.split(max(1, held_out(len(every))))
        whose = "sentences made here, not GLUE (--data has it)" if data is None else data
        self.have(rest, valid, test, f"{whose}: {self.part.folder}, {len(rest):,} for training")

    def _examples(self, rows: glue.Rows) -> Examples:
        """Their bytes, of the longer sentence no more than there is room for."""
        texts = [[np.frombuffer(text.encode() or b" ", np.uint8).astype(np.int16) for text in each] for each, _ in rows]
        joined = [self._joined(each) for each in texts]
        answers = np.array([answer for _, answer in rows])
        y = answers.astype(np.int64) if self.part.classes else (answers / 5).astype(np.float32)[:, None]
        return ragged(joined, y)

    def _joined(self, texts: list[np.ndarray]) -> np.ndarray:
        if len(texts) == 1:
            return texts[0][: self.context]
        room = max(2, self.context - 1)
        first = max(room // 2, room - len(texts[1]))
        return np.concatenate([texts[0][:first], [SEP], texts[1][: max(room // 2, room - len(texts[0]))]]).astype(
            np.int16
        )

    def fits(self) -> dict[str, Any]:
        return {**super().fits(), "head": "classify" if self.part.classes else "regress"}

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        if self.part.classes:
            return super().loss(model, batch, **how)
        x, target, lengths = batch
        how.pop("smoothing", None), how.pop("convention", None)  # of classes
        return model.loss(x, target, lengths, reduction="sum", **how), torch.tensor(len(target))

    def judge(self, model: Any, batches: Iterable[tuple[Tensor, ...]], **how: Any) -> dict[str, float]:
        answers, targets = [], []
        for x, target, lengths in batches:
            answers.append(model(x, None, lengths)[0].float())
            targets.append(target)
        answer, target = torch.cat(answers), torch.cat(targets)
        loss = F.cross_entropy(answer, target) if self.part.classes else F.mse_loss(answer, target)
        said = answer.argmax(-1) if self.part.classes else answer[:, 0]
        pair = said.double().cpu().numpy(), target.double().flatten().cpu().numpy()
        return {"loss": float(loss), **{name: METRICS[name](*pair) for name in self.part.metrics}}

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        """MNLI's genres that were not trained on are `accuracy_mm`."""
        found = super().test(model, **how)
        for other in self.others:
            found["accuracy_mm"] = self.judge(model, self.batches(model, other), **how)["accuracy"]
        return found
