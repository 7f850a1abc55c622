"""How to train: one frozen dataclass, which is also the command line's flags and what a checkpoint stores."""

from dataclasses import dataclass
from typing import Literal

from longwave.errors import UserError, check_positive


@dataclass(frozen=True, kw_only=True)
class Plan:
    steps: int | None = None  # optimizer steps; None: as many as fit into --minutes
    minutes: float = 4.0  # how long training may take, where --steps is not given
    batch: int = 16  # sequences a step
    accumulate: int = 1  # batches a step, one after another: their gradients add up to one
    context: int = 256  # tokens a sequence
    chunk: int | None = None  # hold the activations of so many tokens only; gradients stay exact; None: of all
    lr: float = 3e-3  # the peak learning rate
    schedule: Literal["cosine", "linear", "constant", "noam"] = "cosine"  # after warm-up; noam falls as 1 / sqrt(step)
    warmup: int = 50  # steps over which the rate rises from zero
    floor: float = 0.05  # where cosine and linear end, in units of --lr
    decay: float = 0.1  # weight decay, of matrices
    betas: tuple[float, float] = (0.9, 0.95)  # AdamW's memories
    clip: float = 1.0  # the largest norm of a gradient; 0: any
    smoothing: float = 0.0  # label smoothing: how much of the true token's probability goes to all
    convention: Literal["mixed", "strict"] = "mixed"  # of smoothing: over all tokens, or over the wrong ones
    lora: int = 0  # rank of the adapters that learn in place of the matrices; a head learns whole; 0: none
    lora_alpha: float = 16.0  # their weight, times their rank
    lora_targets: str = "all"  # layers that have one, as the mixers name them: qkv,out
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto: bf16 products where the hardware has them
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"  # where to train
    seed: int = 0  # of weights, order and dropout
    validate_every: int | None = None  # steps between validations; None: ten in all
    patience: int | None = None  # stop after so many validations without a new best; None: never
    save_every: float = 30.0  # seconds between checkpoints

    def __post_init__(self) -> None:
        check_positive(
            steps=1 if self.steps is None else self.steps, minutes=self.minutes, batch=self.batch,
            accumulate=self.accumulate, context=self.context, lr=self.lr, chunk=1 if self.chunk is None else self.chunk,
            validate_every=self.validate_every or 1, patience=self.patience or 1,
        )  # fmt: skip
        if min(self.warmup, self.floor, self.decay, self.clip, self.seed, self.save_every) < 0:
            raise UserError("warmup, floor, decay, clip, seed and save_every cannot be negative")
        if self.lora < 0:
            raise UserError(f"a rank of adapters (lora) cannot be negative, got {self.lora}")
        if not 0 <= self.smoothing < 1:
            raise UserError(f"smoothing must be at least 0 and less than 1, got {self.smoothing}")
