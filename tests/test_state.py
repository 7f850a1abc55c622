"""States: frozen bags of tensors that can be cut, joined, saved and passed through torch's machinery."""

import dataclasses

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from longwave import mixers
from longwave.errors import UserError
from longwave.models.block import Backbone
from longwave.spec import Spec
from longwave.state import Empty, Parts, State, may_write, write_at


class Pair(State):
    a: Tensor
    b: Tensor | None
    inner: tuple[Empty | None, ...]
    fixed: bool = False


def pair(rows=3, width=2):
    inner = (Empty(torch.arange(rows)), None)
    return Pair(torch.arange(float(rows * width)).view(rows, width), None, inner, True)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        pair().a = torch.zeros(1)


def test_plain_fields_are_shared_and_none_stays_none():
    doubled = pair().map(lambda t: t * 2)
    assert doubled.fixed is True
    assert doubled.b is None
    assert doubled.inner[0].n.tolist() == [0, 2, 4]
    assert len(doubled.leaves()) == 2


def test_rows_are_copies():
    state = pair()
    row = state.rows([1])
    row.a.zero_()
    assert state.a[1].tolist() == [2.0, 3.0]
    assert state.rows(torch.tensor([True, False, True])).a.tolist() == [[0.0, 1.0], [4.0, 5.0]]


def test_cat_pads_capacities_with_zeros():
    joined = State.cat([pair(1, 2), pair(2, 3)])
    assert joined.a.tolist() == [[0, 1, 0], [0, 1, 2], [3, 4, 5]]
    assert joined.inner[0].n.tolist() == [0, 0, 1]


def test_where_chooses_row_by_row():
    chosen = State.where(torch.tensor([True, False, True]), pair(), pair().map(torch.zeros_like))
    assert chosen.a.tolist() == [[0, 1], [0, 0], [4, 5]]


def test_nbytes_and_to():
    state = pair()
    assert state.nbytes == 3 * 2 * 4 + 3 * 8
    half = state.to(dtype=torch.bfloat16)
    assert half.a.dtype is torch.bfloat16
    assert half.inner[0].n.dtype is torch.int64


def test_a_state_is_a_pytree():
    values, structure = pytree.tree_flatten(pair())
    again = pytree.tree_unflatten(values, structure)
    assert isinstance(again, Pair)
    assert again.fixed


def test_save_and_load(tmp_path):
    backbone = Backbone(8, blocks=[[Spec("mamba"), Spec("ffn")], Spec("attention"), Spec("hyena", order=3)])
    _, state = backbone(torch.randn(2, 5, 8), backbone.init_state(2))
    state = state.detach()
    state.save(tmp_path / "state")
    loaded = State.load(tmp_path / "state", like=backbone.init_state(1))
    x = torch.randn(2, 3, 8)
    with torch.no_grad():
        assert torch.equal(backbone(x, loaded)[0], backbone(x, state.clone())[0])
    with pytest.raises(UserError, match="state of another model"):
        State.load(tmp_path / "state", like=mixers.create("gla", 8).init_state(1))


def test_writing_in_place_is_allowed_only_where_nobody_differentiates():
    plain, learned = torch.zeros(2), torch.zeros(2, requires_grad=True)
    assert not may_write(plain)
    with torch.no_grad():
        assert may_write(plain)
        assert not may_write(learned)


def test_buffers_grow_by_doubling():
    buffer, sizes = torch.zeros(1, 0, 2), set()
    with torch.no_grad():
        for t in range(100):
            buffer = write_at(buffer, torch.tensor([[t]]), torch.full((1, 1, 2), float(t)), fixed=False)
            sizes.add(buffer.shape[1])
    assert sizes == {8, 16, 32, 64, 128}
    assert buffer[0, :100, 0].tolist() == list(range(100))


def test_an_older_state_stays_readable_beside_its_successors():
    attention = mixers.create("attention", 8).eval()
    x = torch.randn(1, 6, 8)
    with torch.no_grad():
        _, old = attention(x[:, :3], attention.init_state(1))
        kept = old.snapshot()
        first, _ = attention(x[:, 3:], old)
        second, _ = attention(x[:, 3:], kept)
    assert torch.equal(first, second)


def test_a_part_that_is_none_starts_from_the_beginning():
    stack = Backbone(8, blocks=[Spec("lstm"), Spec("gla")], norm="none").eval()
    x = torch.randn(2, 4, 8)
    _, state = stack(x, stack.init_state(2))
    first = state.parts[0]
    y, new = stack(x, Parts((None, state.parts[1])))
    assert new.parts[0] is None
    assert not torch.allclose(y, stack(x, Parts((first, state.parts[1])))[0])
