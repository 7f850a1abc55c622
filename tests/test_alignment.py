"""Additive attention learns to translate: here to write a word backwards, looking at the right letter each time."""

import torch
import torch.nn.functional as F
from torch import nn

from longwave import mixers
from longwave.mixer import valid
from longwave.record import recording

LETTERS, LONGEST = 10, 7


class Translator(nn.Module):
    def __init__(self, d_model=48):
        super().__init__()
        self.embed = nn.Embedding(LETTERS + 1, d_model)
        self.encoder = mixers.create("bidirectional", d_model, mixer="gru")
        self.decoder = mixers.create("additive", d_model)
        self.out = nn.Linear(d_model, LETTERS)

    def forward(self, source, target, lengths):
        x = self.embed(source)
        state = self.decoder.init_state(len(x), x + self.encoder(x, None, lengths)[0], lengths)
        before = torch.cat([torch.full_like(target[:, :1], LETTERS), target[:, :-1]], 1)
        return self.out(self.decoder(self.embed(before), state, lengths)[0])


def words(count):
    source, lengths = torch.randint(LETTERS, (count, LONGEST)), torch.randint(4, LONGEST + 1, (count,))
    mirrored = (lengths[:, None] - 1 - torch.arange(LONGEST)).clamp_min(0)
    return source, source.gather(1, mirrored), lengths, mirrored


def test_a_decoder_learns_where_to_look():
    model = Translator()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    mean = 3.0
    for _ in range(1000):
        source, target, lengths, _ = words(32)
        real = valid(source, lengths)
        loss = F.cross_entropy(model(source, target, lengths)[real], target[real])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        mean += 0.03 * (loss.item() - mean)
        if mean < 0.04:
            break
    source, target, lengths, mirrored = words(200)
    real = valid(source, lengths)
    with recording() as tape, torch.no_grad():
        right = model(source, target, lengths).argmax(-1) == target
    assert right[real].float().mean() >= 0.98
    alignment = tape["weights"][:, 0]
    assert (alignment.masked_select(~real[:, None]) == 0).all()  # nothing is looked for in a pad
    looked = (alignment @ torch.arange(LONGEST).float())[real]
    assert torch.corrcoef(torch.stack([looked, mirrored[real].float()]))[0, 1] >= 0.95  # the anti-diagonal
