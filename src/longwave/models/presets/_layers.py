"""Layers of one mixer, or of several in turn, each with a feed-forward network beside it."""

from longwave import mixers
from longwave.mixer import Mixer
from longwave.spec import Spec

Mixers = str | Spec | tuple[str | Spec, ...]


def in_turn(mixer: Mixers) -> tuple[str | Spec, ...]:
    return tuple(mixer) if isinstance(mixer, tuple | list) else (mixer,)


def layers(mixer: Mixers, n_layers: int, ffn: str | None) -> list[list[Spec]]:
    turns = in_turn(mixer)
    specs = [each if isinstance(each, Spec) else Spec(each) for each in turns]
    beside = [Spec("ffn", kind=ffn)] if ffn else []
    return [[specs[i % len(specs)], *beside] for i in range(n_layers)]


def both_ways(mixer: str | Spec) -> Spec:
    """The mixer as it is where it sees the whole sequence; one that is causal reads it twice, once backwards."""
    spec = mixer if isinstance(mixer, Spec) else Spec(mixer)
    cls: type[Mixer] = mixers.registry.get(spec.name)
    return Spec("bidirectional", mixer=spec) if cls.causal else spec


def on_features(below: Spec, head: Spec, *, d_model: int, n_layers: int, dropout: float) -> Spec:
    """LSTMs that read the features of a language model of both directions, both ways, and a head above."""
    return Spec("sequence_model", d_model=d_model, d_input=2 * below.options["d_model"], below=below, head=head,
                norm="none", dropout=dropout, blocks=[both_ways("lstm")] * n_layers)  # fmt: skip
