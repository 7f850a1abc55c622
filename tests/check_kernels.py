"""Runs every kernel on every case of its op, and on wider ones, beside the definition in float64.

    python tests/check_kernels.py [LIBRARY]

A program of its own, so that test_native.py can run it under sanitizers and with any instruction set.
"""

import ctypes
import sys

import torch

from longwave.ops.cases import Make
from longwave.ops.dispatch import ALL
from longwave.ops.native import build
from longwave.tolerance import TOLERANCE, apart
from test_ops import answers


def wider(make):
    """Whole vectors and a rest, several chunks and a rest: what the small cases of ops do not reach."""
    n, lengths = make.normal, torch.tensor([0, 131])
    a = make.between(0, 1, 2, 131, 45)
    yield "linear_scan", dict(a=a, b=n(2, 131, 45), h=n(2, 45), lengths=lengths)
    yield "min_gru", dict(gate=n(2, 131, 45), candidate=n(2, 131, 45), state=n(2, 45), lengths=lengths)
    scan = dict(x=n(2, 131, 45), dt=n(2, 131, 45), A=make.between(-3, -0.1, 45, 21), B=n(2, 131, 21), C=n(2, 131, 21))
    yield "selective_scan", dict(**scan, D=n(45), z=n(2, 131, 45), state=n(2, 45, 21), lengths=lengths)
    sums = (n(2, 45), make.between(0.5, 2, 2, 45), n(2, 45))
    keys = dict(k=n(2, 131, 45), v=n(2, 131, 45), log_decay=make.between(-2, 0, 45), bonus=n(45))
    yield "wkv", dict(**keys, state=sums, lengths=lengths)
    values, decay, S = n(2, 300, 2, 85), make.between(-1, 0, 2, 300, 2, 37), n(2, 2, 37, 85)
    q, k, a, b = (n(2, 300, 2, 37, scale=0.15) for _ in range(4))
    ends = torch.tensor([300, 131])
    matrix = dict(q=q, k=k, v=values, log_decay=decay, state=S, lengths=ends)
    yield "linear_recurrence", matrix
    yield "delta_rule", dict(**matrix, a=a, b=b)
    gates = dict(x=n(7, 20, 9), W=n(4 * 85, 9), U=n(4 * 85, 85, scale=0.1), b=n(4 * 85))
    rows = torch.tensor([20, 0, 7, 20, 1, 19, 20])
    yield "lstm", dict(**gates, state=(n(7, 85), n(7, 85)), lengths=rows)
    gates = dict(x=n(7, 20, 9), W=n(3 * 85, 9), U=n(3 * 85, 85, scale=0.1), b=n(3 * 85), b_n=n(85))
    yield "gru", dict(**gates, state=n(7, 85), lengths=rows)


def cases(make):
    for name, op in ALL.items():
        for case, arguments in op.cases(make):
            yield f"{name}, {case}", op, arguments
    for name, arguments in wider(make):
        yield f"{name}, wider", ALL[name], arguments


def main(library):
    if library:
        build._found = ctypes.CDLL(library), ""
    if build.reason():
        raise SystemExit(build.reason())
    ran = set()
    for (name, op, arguments), (_, _, exact) in zip(
        cases(Make(torch.float32)), cases(Make(torch.float64)), strict=True
    ):
        for form in op.forms():
            if form.backend != "native" or form.when(**arguments):
                continue
            ran.add(op.name)
            found, wanted = answers(form.run, arguments), answers(op.reference, exact)
            for got, right in zip([*found[0], *found[1]], [*wanted[0], *wanted[1]], strict=True):
                if not apart(got, right) <= TOLERANCE[torch.float32]:
                    raise SystemExit(f"{name}, {form.name}: {apart(got, right)} apart")
    print(f"{build.describe()}: {' '.join(sorted(ran))}")


main(*(sys.argv[1:] or [""]))
