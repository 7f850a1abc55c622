"""mixers, models, tasks and ops"""

from collections.abc import Sequence

from longwave import mixers, models, tasks
from longwave.commands._common import first_line, op_summaries, word
from longwave.errors import choose
from longwave.flags import parse


def run(argv: Sequence[str]) -> None:
    """Every mixer, model, task and op, with a line about each."""
    (words,) = parse("list", argv, words=[word("what", "all", "mixers, models, tasks, ops or all")])
    kinds = {
        "mixers": lambda: {name: mixers.registry.summary(name) for name in mixers.names()},
        "models": lambda: {name: first_line(make) for name, make in sorted(models.all_presets().items())},
        "tasks": lambda: {name: tasks.registry.summary(name) for name in tasks.registry.names()},
        "ops": op_summaries,
    }
    wanted = kinds if words["what"] == "all" else {words["what"]: choose("list", words["what"], kinds)}
    for kind, entries in wanted.items():
        print(kind)
        for name, summary in entries().items():
            print(f"  {name:18s} {summary}")
