"""Words that a model of whole words does not know: what it says in their place is looked up where it looked.

Luong et al. 2015, "Addressing the rare word problem in neural machine translation", section 3; by the alignment of an
attention, Jean et al. 2015, and "PosUnk" in Zhou et al. 2016.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from longwave.errors import UserError
from longwave.models.seq2seq import Seq2Seq
from longwave.record import recording


@torch.no_grad()
def align(
    model: Seq2Seq, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"], lengths: Int[Tensor, " B"] | None = None
) -> Float[Tensor, "B said S"]:
    """How much of each token of the source was looked at for each of the target after its first; NaN at pads of the
    source, whose `lengths` these are.
    """
    state = model.init_state(source, lengths)
    with recording(model) as seen:
        _, state = model(target[:, :-1], state)
    return model.alignment(seen, state)


def replace_unknown(
    said: Sequence[str],
    source: Sequence[str],
    alignment: Float[Tensor, "said S"],
    *,
    unknown: str = "<unk>",
    dictionary: Mapping[str, str] | None = None,  # of words that are not copied but translated
) -> list[str]:
    """`said` with the word of the source that was looked at most in place of each unknown one."""
    if len(alignment) < len(said) or alignment.shape[1] < len(source):
        raise UserError(f"{len(said)} words said of {len(source)} need an alignment of at least as many rows and "
                        f"columns, got {list(alignment.shape)}")  # fmt: skip
    if not source:
        return list(said)
    most = alignment[: len(said), : len(source)].nan_to_num(-1.0).argmax(1).tolist()
    found = [source[place] for place in most]
    return [(dictionary or {}).get(there, there) if word == unknown else word
            for word, there in zip(said, found, strict=True)]  # fmt: skip
