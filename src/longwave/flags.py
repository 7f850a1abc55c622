"""Flags from signatures: a constructor's keyword-only parameters are the command line, and their comments its help."""

import contextlib
import dataclasses
import io
import re
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longwave.errors import UserError, nearest
from longwave.registry import REQUIRED, Option

COMMANDS = Path(__file__).parent / "commands"


def verbs() -> dict[str, str]:
    """The verbs of the command line: a file each, which is not imported to know what it does."""
    files = sorted(file for file in COMMANDS.glob("*.py") if not file.name.startswith("_"))
    heads = {file: file.read_text(encoding="utf-8").partition("\n")[0] for file in files}
    return {file.stem.rstrip("_"): head.strip('"') for file, head in heads.items()}


@dataclasses.dataclass
class Group:
    """Flags that belong together, with defaults where they differ from the schema's."""

    name: str
    title: str
    options: list[Option]
    prefixed: bool = False  # --mamba.d-state for a group named mamba
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)

    def flags(self) -> list[str]:
        prefix = f"--{self.name}." if self.prefixed else "--"
        names = [_word(option) for option in self.options]
        return [prefix + name for name in names] + [f"{prefix}no-{name}" for name in names]


class Helped(Exception):
    """--help was shown."""


def parse(
    verb: str, argv: Sequence[str], groups: Sequence[Group] = (), words: Sequence[Option] = ()
) -> list[dict[str, Any]]:
    """The values of the positional words, then of each group's flags. A mistake becomes one line."""
    try:
        import tyro
    except ImportError as missing:
        raise UserError("the command line needs: pip install 'longwave[cli]'") from missing
    _refuse_unknown(verb, argv, [flag for group in groups for flag in group.flags()])
    positional = tyro.conf.Positional
    fields = [_field(o, {}, positional) for o in words]
    for group in groups:
        made = dataclasses.make_dataclass("Group", [_field(o, group.defaults) for o in group.options], kw_only=True)
        made.__doc__ = group.title
        marks = () if group.prefixed else (tyro.conf.OmitArgPrefixes,)
        fields.append((group.name, _annotated(made, *marks), dataclasses.field()))
    form = dataclasses.make_dataclass("Form", fields, kw_only=True)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            found: Any = tyro.cli(form, args=list(argv), prog=f"longwave {verb}", description=verbs()[verb])
    except SystemExit as left:
        if left.code:
            raise UserError(f"{_one_line(said.getvalue())}; see longwave {verb} --help") from None
        raise Helped from None
    return [
        {o.name: getattr(found, o.name) for o in words},
        *({o.name: getattr(getattr(found, group.name), o.name) for o in group.options} for group in groups),
    ]


def chosen(argv: Sequence[str], flag: str, default: str) -> str:
    """What the user chose by `flag`, before the flags are parsed whose names depend on it."""
    for i, word in enumerate(argv):
        if word == flag and i + 1 < len(argv):
            return argv[i + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return default


def _word(option: Option) -> str:
    """As it is typed; the underscore that keeps a name from being a keyword of Python is not."""
    return option.name.rstrip("_").replace("_", "-")


def _field(option: Option, defaults: dict[str, Any], *marks: Any) -> tuple[str, Any, Any]:
    import tyro

    kind = _typed(option.type)
    metavar = option.name.upper() if marks else "|".join(_words(kind)) if type(None) in typing.get_args(kind) else None
    default = defaults.get(option.name, option.default)
    field = dataclasses.field() if default is REQUIRED else dataclasses.field(default=default)
    name = _word(option) if option.name.endswith("_") else None
    return option.name, _annotated(kind, tyro.conf.arg(name=name, help=option.help, metavar=metavar), *marks), field


def _annotated(kind: Any, *marks: Any) -> Any:
    return typing.Annotated[(kind, *marks)] if marks else kind


def _words(kind: Any) -> list[str]:
    return ["None" if each is type(None) else each.__name__.upper() for each in typing.get_args(kind)][::-1]


def _typed(kind: Any) -> Any:
    """What can be typed on a command line: where a string will do, it is a string."""
    inner = typing.get_args(kind)
    if typing.get_origin(kind) in (typing.Union, types.UnionType) and str in inner:
        return str | None if type(None) in inner else str
    return kind


def _refuse_unknown(verb: str, argv: Sequence[str], known: list[str]) -> None:
    for word in argv:
        flag = word.partition("=")[0].replace("_", "-")
        if flag.startswith("--") and flag not in known and flag not in ("--help", "--"):
            raise UserError(f"{verb} has no option {flag}: {nearest(flag, known)}")


def _one_line(box: str) -> str:
    """What is wrong, out of tyro's box: a title, the problem, then help that --help shows better."""
    text = " ".join(re.sub(r"[╭╮╰╯│]", " ", box).split())
    return re.split(r"─{3,}", text)[1].strip(" .") if text.count("─") > 3 else text
