"""Batch norm: torch's on the tokens that are no pads; it couples rows and times in training, in eval mode nothing."""

import pytest
import torch
from torch import nn

import longwave as lw
from longwave import laws
from longwave.errors import UserError
from longwave.models.block import Backbone
from longwave.parts.norm import make_norm
from longwave.spec import Spec

LENGTHS = torch.tensor([7, 0, 3, 1])


def test_it_is_torchs_on_the_tokens_that_are_real():
    ours, theirs = make_norm("batch", 5).double().train(), nn.BatchNorm1d(5).double().train()
    with torch.no_grad():
        for mine, right in zip(ours.parameters(), theirs.parameters(), strict=True):
            right.copy_(mine.normal_())
    real = torch.arange(7) < LENGTHS[:, None]
    for _ in range(3):
        x = torch.randn(4, 7, 5, dtype=torch.float64) * 3 + 1
        x, also = (x.clone().requires_grad_() for _ in range(2))
        wanted, weight = theirs(x[real]), torch.randn(int(real.sum()), 5, dtype=torch.float64)
        padded = torch.where(real[..., None], also, 1e9)  # what stands in a pad is nobody's
        got = ours(padded, None, LENGTHS)[real]
        torch.testing.assert_close(got, wanted)
        right = torch.autograd.grad((wanted * weight).sum(), [x, *theirs.parameters()])
        mine = torch.autograd.grad((got * weight).sum(), [also, *ours.parameters()])
        torch.testing.assert_close(mine, right)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(x), theirs.eval()(x.mT).mT)
    one = torch.randn(1, 1, 5, dtype=torch.float64)
    assert torch.equal(ours.train()(one), ours.eval()(one))  # of a single token there is no variance


def test_rows_depend_on_each_other_in_training_and_only_then(tmp_path):
    model = lw.create_model("classifier", n_classes=2, d_input=3, d_model=8, n_layers=2, mixer="gru", norm="batch")
    assert model.backbone.couples == ("rows", "times")
    x = torch.randn(4, 7, 3)
    alone, together = model.train()(x[:1])[0], model(x)[0][:1]
    assert not torch.allclose(alone, together, atol=1e-3)
    alone, together = model.eval()(x[:1])[0], model(x)[0][:1]
    torch.testing.assert_close(alone, together)
    assert not torch.allclose(model.train()(x)[0], model.eval()(x)[0], atol=1e-3)
    lw.save(model, tmp_path)
    assert torch.equal(lw.load(tmp_path)(x)[0], model(x)[0])  # running averages are saved, and it is in eval mode


def test_it_keeps_the_laws_and_is_not_trained_in_chunks():
    blocks = [[Spec("gru"), Spec("ffn")]]
    for residual in ("pre", "post", "sandwich"):
        subject = laws.Subject(lambda d, r=residual: Backbone(d, blocks=blocks, norm="batch", residual=r), 8)
        for law in (laws.split, laws.padding, laws.rows, laws.every_parameter):
            law(subject, laws.Case(T=9, B=3, cuts=(4, 5), lengths=(9, 0, 4)))
    model = lw.create_model("classifier", n_classes=2, d_input=3, d_model=8, n_layers=1, mixer="gru", norm="batch")
    x, target = torch.randn(2, 6, 3), torch.tensor([0, 1])
    with pytest.raises(UserError, match="couples times in training: it cannot be trained in chunks"):
        model.train().loss(x, target, chunk=2)
    torch.testing.assert_close(model.eval().loss(x, target, chunk=2), model.loss(x, target))
    with pytest.raises(UserError, match="count a batch twice"):
        Backbone(8, blocks=blocks, norm="batch", residual="reversible")
