"""A pretrained model with another head: everything below it is kept, the head begins anew.

    load("runs/pretrained", head=Spec("classify", n_classes=2, pool="last"))

To fine-tune a language model so is Radford et al. 2018, section 3.2: a linear map of the last token's hidden state;
`language` is the weight of the loss of the next token, which goes on beside the head's (theirs was 0.5). A pooler's
dense layer is kept where both heads have one. On a language model of both directions, whose features are mixed by
weights of the task, LSTMs stand between these and the head (Peters et al. 2018, section 3.3).
"""

from longwave import models
from longwave.errors import UserError
from longwave.models.bilm import BiLM
from longwave.models.heads import Pooled
from longwave.models.language_model import LanguageModel
from longwave.models.presets._layers import on_features
from longwave.models.sequence_model import SequenceModel
from longwave.registry import schema
from longwave.spec import Spec


def with_head(model: object, head: Spec, *, language: float = 0.0) -> SequenceModel:
    if isinstance(model, BiLM):
        if language:
            raise UserError("language weighs the loss of the next token: a model of both directions has seen that one")
        return _on_features(model, head)
    if not isinstance(model, LanguageModel | SequenceModel):
        raise UserError(f"a {type(model).__name__} takes no other head: a language or sequence model does")
    theirs = {o.name: o.default for o in schema(type(model))} | dict(model.spec.options)
    more = {"language": language} if language else {}
    ours = {o.name for o in schema(SequenceModel)} - {"head", *more}
    made = models.create(Spec("sequence_model", **{n: v for n, v in theirs.items() if n in ours}, head=head, **more))
    assert isinstance(made, SequenceModel)
    kept = tuple(f"{part}." for part in ("embed", "below", "types", "embed_norm", "backbone"))
    if isinstance(model, SequenceModel) and isinstance(model.head, Pooled) and isinstance(made.head, Pooled):
        kept += ("head.dense.",)
    wanted = made.state_dict()
    held = {name: t for name, t in model.state_dict().items() if name.startswith(kept)}
    made.load_state_dict({name: held.get(name, t) for name, t in wanted.items()})
    made.home = model.home
    return made.eval()


def _on_features(model: BiLM, head: Spec) -> SequenceModel:
    below, d_model = model.spec.but(guesses=False), 2 * model.spec.options["d_model"]
    dropout = model.spec.options.get("dropout", 0.0)
    made = models.create(on_features(below, head, d_model=d_model, n_layers=1, dropout=dropout))
    assert isinstance(made, SequenceModel)
    assert made.below is not None
    held = model.state_dict()
    made.below.load_state_dict({name: held[name] for name in made.below.state_dict()})
    made.home = model.home
    return made.eval()
