"""Sequence mixers: one idea, one paper, one file. Adding a mixer is adding a file."""

from typing import TYPE_CHECKING, Any

from longwave.registry import Registry
from longwave.spec import Spec

if TYPE_CHECKING:
    from longwave.mixer import Mixer

registry = Registry("mixer", __name__)


def names(pattern: str = "*") -> list[str]:
    """All registered mixers, or those that match a pattern such as "*attention"."""
    return registry.names(pattern)


def register(cls: type, name: str | None = None) -> type:
    """Register a mixer of one's own, so that specs can name it; also a decorator."""
    return registry.add(cls, name)


def create(spec: str | Spec, d_model: int, **options: Any) -> "Mixer":
    """The mixer of this name and width; options are strict."""
    return registry.create(spec, d_model, **options)
