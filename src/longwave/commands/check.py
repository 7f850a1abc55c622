"""NAME or FILE.py[:Name]: try the laws on a mixer"""

import time
from collections.abc import Sequence
from typing import Any

from longwave import mixers
from longwave.commands._common import changed_options, mixer_group, word
from longwave.errors import UserError, nearest
from longwave.flags import Group, parse
from longwave.registry import Option, load_file


def run(argv: Sequence[str]) -> int:
    """Try the laws on a registered mixer or on a file of one's own."""
    everything = "--all" in argv
    name = next((word for word in argv if not word.startswith("-")), "")
    registered = name in mixers.names()
    groups = [Group("what", "what to check", [Option("all", bool, False, "every registered mixer")])]
    if registered:
        groups.append(mixer_group(name))
    words, _, *own = parse("check", argv, groups, [word("name", "", "a mixer, or FILE.py, or FILE.py:Name")])
    if not (everything or words["name"]):
        raise UserError("check what? a mixer, FILE.py, FILE.py:Name, or --all")
    subjects = mixers.names() if everything else [words["name"]]
    kept = [_check_one(subject, own[0] if own else {}) for subject in subjects]
    return 0 if all(kept) else 1


def _check_one(name: str, options: dict[str, Any]) -> bool:
    from longwave.laws import Verdict, check

    def tell(verdict: Verdict) -> None:
        print(verdict, flush=True)

    changed = changed_options(mixers.registry.get(name), options) if options else {}
    path, _, wanted = name.partition(".py")
    subject: Any = name
    if name.endswith(".py") or ".py:" in name:
        subject = _mixer_in(load_file(path + ".py"), wanted.lstrip(":"), path + ".py")
    elif changed:
        subject = lambda d: mixers.create(name, d, **changed)  # noqa: E731
    print(" ".join([name, *(f"{key}={value}" for key, value in changed.items())]))
    began = time.monotonic()
    report = check(subject, report=tell)
    print(f"  {'all declared laws kept' if report.ok else 'NOT a lawful mixer'} ({time.monotonic() - began:.1f} s)")
    return report.ok


def _mixer_in(module: Any, name: str, file: str) -> Any:
    """The mixer called `name` in a user's module, or its only one."""
    from longwave.mixer import Mixer

    if name:
        if not hasattr(module, name):
            raise UserError(f"{file} has no {name!r}: {nearest(name, vars(module))}")
        return getattr(module, name)
    own = [
        c
        for c in vars(module).values()
        if isinstance(c, type) and issubclass(c, Mixer) and c.__module__ == module.__name__
    ]
    if len(own) != 1:
        names = ", ".join(c.__name__ for c in own) or "none"
        raise UserError(f"{file} defines {len(own)} mixers ({names}): say which, as {file}:Name")
    return own[0]
