"""From one language to another, on parallel text; judged by BLEU (sacrebleu) of what beam search finds.

Both languages share one byte-pair vocabulary, learnt from the training text. A batch is of sentences of about the same
length: `--batch` times `--context` tokens with their pads, so many as fit. A longer sentence than `--context` is left
out of training.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import Tensor

from longwave.data.parallel import Buckets, Pairs, read_pairs
from longwave.data.tokens import learn_pieces, read_pieces
from longwave.errors import UserError, check_positive
from longwave.generate.translate import padded, translate
from longwave.models.seq2seq import Seq2Seq

QUICK = 100  # sentences of a quick validation
VOCAB = {True: 8000, False: 320}  # tokens learnt from data, and from the built-in numbers

Rows = list[list[int]]


class Translation:
    preset: ClassVar[str] = "transformer"
    plan: ClassVar[dict[str, Any]] = dict(lr=1.2e-3, warmup=150, floor=0.02, decay=0.01, betas=(0.9, 0.98),
                                          smoothing=0.1, context=96)  # fmt: skip
    model: ClassVar[dict[str, Any]] = dict(d_model=256, n_layers=3, n_heads=4, d_hidden=768, residual="pre",
                                           dropout=0.25)  # fmt: skip
    decides: ClassVar[tuple[str, ...]] = ("vocab",)
    metric: ClassVar[str] = "bleu"
    better: ClassVar[Literal["higher", "lower"]] = "higher"

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        data: str | None = None,  # a folder of train.en, train.de, val.en ... (.gz too); None: numbers written out
        source: str = "en",  # the language that is read, as in the names of the files
        target: str = "de",  # the language that is written
        vocab: int | None = None,  # most tokens of the two; None: 8000, of the built-in numbers 320
        tokenizer: str | None = None,  # a tokenizer.json to use; None: one is learnt
        beams: int = 4,  # continuations that the search keeps
        length_penalty: float = 1.0,  # above 0 longer translations are favoured
    ) -> None:
        check_positive(beams=beams, vocab=1 if vocab is None else vocab)
        data = data and str(Path(data).expanduser().absolute())
        self.options = dict(data=data, source=source, target=target, vocab=vocab, tokenizer=tokenizer, beams=beams,
                            length_penalty=length_penalty)  # fmt: skip
        self.search: dict[str, Any] = dict(beams=beams, length_penalty=length_penalty)
        self.context, self.parts = context, read_pairs(data, source, target)
        train = self.parts["train"]
        size = vocab or VOCAB[data is not None]
        self.tokens = read_pieces(Path(tokenizer)) if tokenizer else learn_pieces(train.source + train.target, size)
        if self.tokens.start is None or not self.tokens.ends:
            raise UserError(f"{tokenizer} does not say what begins and ends a translation: generation_config.json "
                            "beside it does, by decoder_start_token_id and eos_token_id")  # fmt: skip
        texts = zip(train.source, train.target, strict=True)
        pairs = [pair for pair, text in zip(zip(*self._rows(train), strict=True), texts, strict=True)
                 if all(text) and max(map(len, pair)) <= context]  # fmt: skip
        if not pairs:
            raise UserError(f"no sentence of {data} is as short as --context {context}")
        self.sources, self.targets = zip(*pairs, strict=True)
        self.buckets = Buckets([max(map(len, pair)) for pair in pairs], batch * context, seed)

    def fits(self) -> dict[str, Any]:
        return {"vocab": self.tokens.size}

    @property
    def quick_share(self) -> float:
        return min(1.0, QUICK / len(self.parts["val"]))

    def check(self, model: Any) -> None:
        if not isinstance(model, Seq2Seq):
            raise UserError(f"translation needs an encoder and a decoder, not a {type(model).__name__}: "
                            "--model transformer has both")  # fmt: skip
        if len(model.out) < self.tokens.size:
            raise UserError(f"the text has {self.tokens.size} tokens, this model {len(model.out)}")

    def batch(self, step: int) -> tuple[Tensor, ...]:
        rows = self.buckets.at(step).tolist()
        return _batch([self.sources[i] for i in rows], [self.targets[i] for i in rows])

    def loss(self, model: Any, batch: tuple[Tensor, ...], **how: Any) -> tuple[Tensor, Tensor]:
        source, lengths, target, ends = batch
        return model.loss(source, target, lengths, ends, reduction="sum", **how), (ends - 1).sum()

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        part = self.parts["val"]
        return self._judge(model, Pairs(part.source[:QUICK], part.target[:QUICK]) if quick else part, **how)

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        """The same on the folder's first test, and BLEU on all the others."""
        tests = {name: part for name, part in self.parts.items() if name.startswith("test")}
        if not tests:
            raise UserError(f"there is no test in {self.options['data']}: no file test*.{self.options['source']}")
        first, *others = tests
        more = {f"bleu_{name}": self.bleu(model, tests[name]) for name in others}
        return {**self._judge(model, tests[first], **how), **more}

    def _judge(self, model: Any, part: Pairs, **how: Any) -> dict[str, float]:
        sources, targets = self._rows(part)
        in_turn = Buckets([max(map(len, pair)) for pair in zip(sources, targets, strict=True)], 1 << 13, seed=0)
        device = next(model.parameters()).device
        total, count = 0.0, 0
        for step in range(len(in_turn)):
            rows = in_turn.at(step).tolist()
            batch = _batch([sources[i] for i in rows], [targets[i] for i in rows])
            lost, n = self.loss(model, tuple(t.to(device) for t in batch), **how)
            total, count = total + float(lost), count + int(n)
        return {"loss": total / count, "bleu": self.bleu(model, part)}

    def bleu(self, model: Any, part: Pairs) -> float:
        try:
            import sacrebleu
        except ImportError as missing:
            raise UserError("BLEU needs: pip install 'longwave[translate]'") from missing
        said = translate(model, part.source, tokens=self.tokens, **self.search)
        return float(sacrebleu.corpus_bleu(said, [part.target]).score)

    def keep(self, folder: Path) -> None:
        self.tokens.save(folder)

    def describe(self) -> dict[str, Any]:
        marks = {name: part.mark for name, part in self.parts.items()}
        return {"task": "translation", "options": self.options, "context": self.context, "marks": marks}

    def _rows(self, part: Pairs) -> tuple[Rows, Rows]:
        start, end = self.tokens.start, min(self.tokens.ends)
        assert start is not None
        targets = [[start, *self.tokens.encode(text), end] for text in part.target]
        return [self.tokens.prompt(text) for text in part.source], targets


def _batch(sources: Sequence[list[int]], targets: Sequence[list[int]]) -> tuple[Tensor, ...]:
    return *padded(sources), *padded(targets)
