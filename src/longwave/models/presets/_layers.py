"""Layers of one mixer, or of several in turn, each with a feed-forward network beside it."""

from longwave.spec import Spec

Mixers = str | Spec | tuple[str | Spec, ...]


def layers(mixer: Mixers, n_layers: int, ffn: str | None) -> list[list[Spec]]:
    turns = mixer if isinstance(mixer, tuple | list) else (mixer,)
    specs = [each if isinstance(each, Spec) else Spec(each) for each in turns]
    beside = [Spec("ffn", kind=ffn)] if ffn else []
    return [[specs[i % len(specs)], *beside] for i in range(n_layers)]
