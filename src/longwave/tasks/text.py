"""Text classification, byte by byte: is a film review a good one? (IMDB; the Text task of the Long Range Arena)

Maas et al. 2011; Tay et al. 2021, section 2.2.2: bytes, of each review the first 1000 to 4000.
"""

from typing import Any, ClassVar

from longwave.data import labelled_text
from longwave.tasks._classified import Classified, held_out


class Text(Classified):
    plan: ClassVar[dict[str, Any]] = {
        "context": 2048, "batch": 32, "lr": 4e-3, "decay": 0.05, "betas": (0.9, 0.999), "warmup": 300, "floor": 0.0,
        "minutes": 60.0,
    }  # fmt: skip
    model: ClassVar[dict[str, Any]] = {
        "d_model": 96, "n_layers": 4, "norm": "layer", "pool_norm": "after", "dropout": 0.1, "tied_dropout": True,
    }  # fmt: skip
    vocab = 256

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # aclImdb, or a folder of train/CLASS/*.txt and test/CLASS/*.txt; None: docstrings
    ) -> None:
        super().__init__(context, batch, seed, data=data)
        train, test, names = labelled_text.docstrings(context) if data is None else labelled_text.read(data, context)
        self.n_classes = len(names)
        valid, rest = train.split(held_out(len(train)))
        whose = "docstrings of Python's library (--data has IMDB)" if data is None else data
        self.have(rest, valid, test, f"{whose}: {len(train):,} texts of {', '.join(names)}")
