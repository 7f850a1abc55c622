"""RUN: judge a trained model on held-out text"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longwave.commands._common import print_metrics, word
from longwave.flags import Group, parse
from longwave.registry import REQUIRED, Option


def run(argv: Sequence[str]) -> None:
    """Metrics of a trained model, on the held-out part of its own data or of other data."""
    flags = [
        Option("data", str | None, None, "other text: a file, a folder or a pattern"),
        Option("context", int | None, None, "tokens that a prediction may see; None: as in training"),
        Option("test", bool, False, "on the test split, which neither training nor its validations saw"),
        Option("json", bool, False, "print JSON"),
    ]
    words, how = parse("eval", argv, [Group("judge", "on what", flags)], [word("run", REQUIRED, "a run of training")])
    import torch

    from longwave import tasks
    from longwave.models.store import load
    from longwave.train.checkpoint import read_progress
    from longwave.train.plan import Plan

    about = read_progress(Path(words["run"]))
    plan = Plan(**{**about.plan, "context": how["context"] or about.plan["context"]})
    options = {**about.task["options"], **({"data": how["data"]} if how["data"] else {})}
    if "tokenizer" in options and (Path(words["run"]) / "tokenizer.json").exists():
        options["tokenizer"] = str(Path(words["run"]) / "tokenizer.json")  # that of the run, whatever the data
    task: Any = tasks.create(about.task["task"], options, context=plan.context, batch=plan.batch, seed=plan.seed)
    model = load(words["run"]).eval()
    with torch.no_grad():
        metrics = task.test(model) if how["test"] else task.validate(model)
    if how["json"]:
        baselines = {"baselines": task.baselines()} if "bits_per_byte" in metrics and not how["test"] else {}
        print(json.dumps({**metrics, **baselines}))
    else:
        print_metrics(metrics, task, "test" if how["test"] else "validation")
