"""What this machine can do for us: versions, processor, and which form of which op runs here, and why."""

import os
import platform
from dataclasses import dataclass

import torch

from longwave import ops  # noqa: F401 - lists the ops
from longwave.ops.cases import Make
from longwave.ops.dispatch import ALL, BACKENDS
from longwave.ops.native import build
from longwave.train.hardware import choose_half


@dataclass(frozen=True)
class Finding:
    op: str
    form: str
    here: str  # "yes", or why not
    takes: str  # how many of the op's sample cases `auto` gives to it


def diagnose() -> list[Finding]:
    """Every form of every op, tried on the op's own sample cases."""
    findings = []
    for op in sorted(ALL.values(), key=lambda each: each.name):
        cases = [case for _, case in op.cases(Make(grad=False))] if op.cases else []
        chosen = [op.choose(**case).name for case in cases]
        for form in op.forms():
            reasons = [form.when(**case) for case in cases]
            able = not all(reasons) or not cases
            why = "yes" if able else max(reasons, key=reasons.count)
            findings.append(Finding(op.name, form.name, why, f"{chosen.count(form.name)} of {len(cases)}"))
    return findings


def machine() -> dict[str, str]:
    import longwave

    cpu = torch.device("cpu")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "longwave": longwave.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "native kernels": build.describe(),
        "bf16 products": "yes" if choose_half("auto", cpu) else "no",
        "float32 products": _products(),
        "threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
        "GPUs": ", ".join(gpus) or "none",
        "backend asked for": os.environ.get("LONGWAVE_BACKEND", f"none: the first that can, of {', '.join(BACKENDS)}"),
    }


def _products() -> str:
    from longwave.ops.native.linear import FASTER, onednn_speed

    speed = onednn_speed()
    return f"{'by oneDNN' if speed >= FASTER else 'as torch has them'} (oneDNN is {speed:.1f} times as fast as torch)"


def doctor() -> None:
    """Print the machine, then a table of ops and their forms."""
    for name, value in machine().items():
        print(f"{name:18s} {value}")
    print(f"\n{'op':18s} {'form':18s} {'takes':9s} can run here")
    for f in diagnose():
        print(f"{f.op:18s} {f.form:18s} {f.takes:9s} {f.here}")
    print("\ntakes: how many of the op's sample cases go to this form when nothing is asked for")
