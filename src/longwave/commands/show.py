"""NAME: equations, cost, options and source of a mixer, model or op"""

import inspect
from collections.abc import Sequence

from longwave import mixers, models
from longwave.commands._common import op_summaries, print_options, word
from longwave.errors import UserError, nearest
from longwave.flags import parse
from longwave.registry import REQUIRED


def run(argv: Sequence[str]) -> None:
    """Everything about one name: docstring, options, source."""
    (words,) = parse("show", argv, words=[word("name", REQUIRED, "a mixer, a model or an op")])
    name, presets = words["name"], models.all_presets()
    if name in mixers.names():
        cls = mixers.registry.get(name)
        print(f"mixer {name}\n\n{inspect.getdoc(inspect.getmodule(cls))}\n\noptions")
        print_options(cls)
        print(f"\nsource ({inspect.getfile(cls)})\n\n{inspect.getsource(cls)}")
    elif name in presets:
        print(f"model {name}\n\n{inspect.getdoc(presets[name])}\n\noptions")
        print_options(presets[name])
        print(f"\nsource ({inspect.getfile(presets[name])})\n\n{inspect.getsource(presets[name])}")
    elif name in op_summaries():
        from longwave import ops
        from longwave.ops.dispatch import ALL

        op = ALL[name] if name in ALL else getattr(ops, name)
        definition = getattr(op, "reference", op)
        print(f"op {name}\n\n{inspect.getdoc(inspect.getmodule(definition))}\n\n{inspect.getsource(definition)}")
        print("forms: " + ", ".join(form.name for form in ALL[name].forms()) if name in ALL else "")
    else:
        raise UserError(f"there is no {name!r}: {nearest(name, {*mixers.names(), *presets, *op_summaries()})}")
