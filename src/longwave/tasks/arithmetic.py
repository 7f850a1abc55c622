"""Arithmetic: say the digits of a sum or a product; judged on as many digits as in training, and on twice as many.

How a model knows the place of a digit decides whether it can go beyond the lengths it has seen (Shen et al. 2023,
sections 3 and 4; hints, Zhou et al. 2024, section 4). `places` says what stands before each digit:

    none       nothing: what the model's own positions tell
    aligned    the digit's place: units, tens ... have a token each, the same in both numbers and in the result
    random     the same, counted from a random place, so that the tokens of places beyond training are known, too

Digits go from the units up, as one computes by hand. Chance is about 1/10 a digit.
"""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from longwave.errors import UserError, check_positive
from longwave.ops.loss import IGNORE
from longwave.tasks._generated import BATCHES, QUICK, TEST, TokenTask

SIGN, EQUALS, END, PLACES = 10, 11, 12, 13  # tokens behind the digits; from 13 on, those of places
LONGER = 2  # times as many digits, to see whether a model goes beyond its training


class Arithmetic(TokenTask):
    plan: ClassVar[dict[str, Any]] = {"batch": 64, "lr": 1e-3, "context": 256}
    model: ClassVar[dict[str, Any]] = {"d_model": 128, "n_layers": 4}

    def __init__(
        self,
        context: int,
        batch: int,
        seed: int,
        *,
        digits: int = 5,  # of each number at most, in training
        operation: Literal["add", "multiply"] = "add",
        places: Literal["none", "aligned", "random"] = "none",  # what tells the place of a digit
    ) -> None:
        super().__init__(context, batch, seed, digits=digits, operation=operation, places=places)
        check_positive(digits=digits)
        self.digits, self.operation, self.places = digits, operation, places
        self.most = 2 * LONGER * digits + 1  # places of the longest result
        self.vocab = PLACES + (0 if places == "none" else self.most)
        need = self._length(LONGER * digits)
        if context < need:
            raise UserError(f"twice {digits} digits with their result take {need} tokens: --context is {context}")

    def draw(self, random: np.random.Generator, rows: int) -> tuple[np.ndarray, ...]:
        return self.written(random, rows, int(random.integers(1, self.digits + 1)))

    def written(self, random: np.random.Generator, rows: int, digits: int) -> tuple[np.ndarray, ...]:
        """Exercises of so many digits, padded to their common length; a target wherever a digit of the result comes."""
        a, b = random.integers(10, size=(2, rows, digits))
        result = carried(a + b if self.operation == "add" else products(a, b), self._result(digits))
        start = 0 if self.places != "random" else random.integers(self.most - result.shape[1] + 1, size=(rows, 1))
        parts = [self._placed(each, start) for each in (a, b, result)]
        sign, equals, end = (np.full((rows, 1), token) for token in (SIGN, EQUALS, END))
        line = np.concatenate([parts[0], sign, parts[1], equals, parts[2], end], 1)
        tokens, target = line[:, :-1], line[:, 1:].copy()
        target[:, : line.shape[1] - 2 - parts[2].shape[1]] = IGNORE
        target[target >= PLACES] = IGNORE  # places are given, not asked for
        return tokens, target

    def validate(self, model: Any, *, quick: bool = False, **how: Any) -> dict[str, float]:
        count = QUICK if quick else BATCHES
        longer = self._whole(model, LONGER * self.digits, count)
        own = super().validate(model, quick=quick, **how)
        return {**own, "exact": self._whole(model, self.digits, count), "exact_twice_as_long": longer}

    def test(self, model: Any, **how: Any) -> dict[str, float]:
        longer = self._whole(model, LONGER * self.digits, BATCHES, TEST)
        return {**super().test(model, **how), "exact": self._whole(model, self.digits, BATCHES, TEST),
                "exact_twice_as_long": longer}  # fmt: skip

    def _whole(self, model: Any, digits: int, count: int, seed: int = TEST - 1) -> float:
        """The share of exercises of so many digits whose result is right in every digit, each given those before."""
        right, device = 0, next(model.parameters()).device
        for i in range(count):
            drawn = self.written(np.random.default_rng((seed, i, digits)), self.size, digits)
            tokens, target = (torch.from_numpy(each).to(device) for each in drawn)
            said: Tensor = (model.hidden(tokens)[0] @ model.out.T).argmax(-1)
            right += int(((said == target) | (target == IGNORE)).all(1).sum())
        return right / (count * self.size)

    def _result(self, digits: int) -> int:
        return digits + 1 if self.operation == "add" else 2 * digits

    def _length(self, digits: int) -> int:
        each = 1 if self.places == "none" else 2
        return each * (2 * digits + self._result(digits)) + 2

    def _placed(self, digits: np.ndarray, start: Any) -> np.ndarray:
        if self.places == "none":
            return digits
        places = np.broadcast_to(PLACES + start + np.arange(digits.shape[1]), digits.shape)
        return np.stack([places, digits], -1).reshape(len(digits), -1)


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The digits' products, summed by place, not yet carried."""
    n = a.shape[1]
    out = np.zeros((len(a), 2 * n), a.dtype)
    for i in range(n):
        out[:, i : i + n] += a[:, i : i + 1] * b
    return out


def carried(sums: np.ndarray, places: int) -> np.ndarray:
    out, carry = np.zeros((len(sums), places), sums.dtype), np.zeros(len(sums), sums.dtype)
    for i in range(places):
        carry += sums[:, i] if i < sums.shape[1] else 0
        out[:, i], carry = carry % 10, carry // 10
    return out
