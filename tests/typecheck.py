"""The checker of shapes and types under test: as Python means them, so that an int will do for a float.

Functions inside functions are left alone. They would be wrapped anew, which compiles code, at every call of the outer
one: a recurrent cell cost thirty times its arithmetic.
"""

import ast

from beartype import BeartypeConf, beartype
from jaxtyping import _import_hook, install_import_hook

outermost = beartype(conf=BeartypeConf(is_pep484_tower=True))


class Outermost(_import_hook.JaxtypingTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        inside = any(isinstance(parent, ast.FunctionDef) for parent in self._parents)
        return node if inside else super().visit_FunctionDef(node)


def install() -> None:
    """Check every annotated shape and type of the package, on every call."""
    _import_hook.JaxtypingTransformer = Outermost
    install_import_hook("longwave", "typecheck.outermost")  # a name of its own: what is compiled is cached under it
