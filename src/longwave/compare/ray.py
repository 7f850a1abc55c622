"""The same trials on Ray: the local one, or a cluster whose nodes share the folder of the trials.

Trials that only choose a learning rate run under Ray Tune's ASHA (Li et al. 2020), which ends the worse ones early;
final ones run to their end.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from longwave.compare.curve import validations
from longwave.compare.engine import Then
from longwave.compare.trial import Result, Trial, prepare, read_result, write_json
from longwave.errors import RunError, UserError

GLANCE = 0.5  # seconds between two looks at a trial's log
ENDED = "ended early by ASHA"


def run_all(
    trials: Sequence[Trial], home: Path, *, jobs: int | None, threads: int = 1, then: Then = lambda trial, result: (),
    **_: Any,
) -> dict[str, Result]:  # fmt: skip
    """The results by name; `then` may add trials, which run when those before them are done."""
    try:
        import ray
    except ImportError as missing:
        raise UserError("--engine ray needs: pip install 'longwave[ray]'") from missing
    if not ray.is_initialized():
        ray.init(num_cpus=jobs and jobs * threads, include_dashboard=False, log_to_driver=False)
    done: dict[str, Result] = {}
    home = home.absolute()
    while trials := [trial for trial in trials if trial.name not in done]:
        unknown = [trial for trial in trials if read_result(prepare(trial, home)) is None]
        if unknown:
            _tune(unknown, home, threads)
        added: list[Trial] = []
        for trial in trials:
            done[trial.name] = result = read_result(home / trial.name) or _early(home / trial.name)
            added += then(trial, result)
        trials = added
    return done


def _tune(trials: Sequence[Trial], home: Path, threads: int) -> None:
    from ray import tune

    which = {"folder": tune.grid_search([str(home / trial.name) for trial in trials])}
    choosing = not any(trial.final for trial in trials)
    scheduler = tune.schedulers.ASHAScheduler(max_t=1000, grace_period=3) if choosing else None
    tune.Tuner(
        tune.with_resources(tune.with_parameters(_train, threads=threads), {"cpu": threads}),
        param_space=which,
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler),
        run_config=tune.RunConfig(storage_path=str(home / "ray"), verbose=0),
    ).fit()


def _train(config: dict[str, Any], threads: int) -> None:
    """Runs in one of Ray's workers: starts the trial's process, and tells Ray of each validation."""
    from ray import tune

    folder = Path(config["folder"])
    call = [sys.executable, "-m", "longwave.compare.trial", str(folder), str(threads)]
    process, told = subprocess.Popen(call), 0
    try:
        while process.poll() is None:
            points = validations(folder, 1)
            for point in points[told:]:
                tune.report({"loss": point.metrics["loss"], "step": point.step})
            told = len(points)
            time.sleep(GLANCE)
    finally:
        process.terminate()  # it saves everything
        process.wait()
    result = read_result(folder)
    if result is None:
        raise RunError(f"{folder} ended without a result: its output.txt says why")
    tune.report({"loss": result.metrics.get("loss", float("inf")), "step": result.steps})


def _early(folder: Path) -> Result:
    """A trial that ASHA ended: judged by its last validation."""
    points = validations(folder, 1)
    if not points:
        return Result(error="Ray ended it before its first validation")
    result = Result(metrics=points[-1].metrics, ended=ENDED, steps=points[-1].step, seconds=points[-1].seconds)
    write_json(folder / "result.json", asdict(result))
    return result
