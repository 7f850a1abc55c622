"""What attention is held to: a soft look-up, its scores, masks, windows and positions, each by numbers."""

import itertools
import math

import numpy as np
import pytest
import scipy.optimize
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import longwave as lw
from longwave import mixers
from longwave.errors import UserError
from longwave.laws import check
from longwave.ops.attention import Pattern, attention, weigh
from longwave.parts.position import rotate, sinusoids
from longwave.parts.score import additive
from longwave.record import recording
from longwave.spec import Spec

ALL = Pattern(causal=False)


def seen_by(run):
    """What `run` returns, and the attention weights it used."""
    with recording() as tape:
        y = run()
    return y, tape["weights"]


def look_up(query, keys, values, **how):
    """One query among some keys: vectors in, a vector and its weights out."""
    y, w = seen_by(lambda: attention(query[None, None, None], keys[None, :, None], values[None, :, None], ALL, **how))
    return y[0, 0, 0], w[0, 0, 0]


def qkv(B=2, T=7, H=2, K=4, V=3, S=None):
    S = S or T
    return (torch.randn(B, n, H, w, dtype=torch.float64, requires_grad=True) for n, w in ((T, K), (S, K), (S, V)))


def by_loops(q, k, v, sees, scale=None):
    """The textbook, a number at a time."""
    B, T, H, K = q.shape
    out = torch.zeros(B, T, H, v.shape[-1], dtype=torch.float64)
    for b, t, h in itertools.product(range(B), range(T), range(H)):
        scores = [sum(float((q[b, t, h, i] * k[b, s, h, i]).detach()) for i in range(K)) * (scale or K**-0.5)
                  for s in range(k.shape[1])]  # fmt: skip
        weights = [math.exp(z) if sees(t, s) else 0.0 for s, z in enumerate(scores)]
        for s, w in enumerate(weights):
            if w:
                out[b, t, h] += w / sum(weights) * v[b, s, h].detach()
    return out


def test_a_soft_look_up():
    values = torch.tensor([[1.0, 2.0], [5.0, -2.0]], dtype=torch.float64)
    keys = torch.tensor([[math.log(0.3)], [math.log(0.7)]], dtype=torch.float64)
    y, w = look_up(torch.ones(1, dtype=torch.float64), keys, values)
    torch.testing.assert_close(w, torch.tensor([0.3, 0.7], dtype=torch.float64), atol=1e-15, rtol=0)
    torch.testing.assert_close(y, 0.3 * values[0] + 0.7 * values[1], atol=1e-15, rtol=0)
    _, w = look_up(torch.randn(4), torch.randn(50, 4), torch.randn(50, 2))
    assert (w >= 0).all()
    assert w.sum().item() == pytest.approx(1, abs=1e-6)


def test_a_cold_look_up_is_a_hard_one():
    keys, values = torch.eye(6), torch.randn(6, 3)
    for i in range(6):
        y, _ = look_up(keys[i], keys, values, scale=1 / 1e-3)
        assert (y - values[i]).abs().max() <= 1e-6
    scores = torch.tensor([0.3, 0.9, 0.8, -1.0])  # the best by 0.1
    y, _ = look_up(torch.ones(1), scores[:, None], values[:4], scale=1 / 1e-3)
    assert (y - values[1]).abs().max() <= 1e-6


def test_dot_products_by_hand():
    q, k = torch.full((64,), 1.5), torch.full((64,), 1.0)
    other = torch.zeros(64)
    for scale, gap in ((1.0, 96.0), (None, 12.0)):
        _, w = look_up(q.double(), torch.stack([k, other]).double(), torch.eye(2).double(), scale=scale)
        assert math.log(w[0] / w[1]) == pytest.approx(gap, rel=1e-9)
    _, w = look_up(torch.ones(1), torch.tensor([[1e4], [-1e4], [9999.0]]), torch.eye(3))
    assert w.isfinite().all()


def test_equals_loops_torch_and_its_own_derivative():
    q, k, v = qkv()
    wanted = by_loops(q, k, v, lambda t, s: True)
    assert (attention(q, k, v, ALL) - wanted).abs().max() <= 1e-12
    small = [x.float().transpose(1, 2) for x in (q, k, v)]
    ours = attention.reference(*(x.transpose(1, 2) for x in small), ALL)
    assert (ours - F.scaled_dot_product_attention(*small).transpose(1, 2)).abs().max() <= 1e-6
    assert torch.autograd.gradcheck(lambda *x: attention.reference(*x, ALL), (q, k, v))
    Q, K, V = (x[0, :, 0].T for x in (q, k, v))  # a column a token
    columns = V @ torch.softmax(Q.T @ K / 2, -1).T
    assert (attention(q, k, v, ALL)[0, :, 0].T - columns).abs().max() <= 1e-12


@settings(max_examples=100)
@given(seed=st.integers(0, 10**6))
def test_temperature_changes_sharpness_not_order(seed):
    draw = torch.Generator().manual_seed(seed)
    q, k = torch.randn(4, generator=draw, dtype=torch.float64), torch.randn(9, 4, generator=draw, dtype=torch.float64)
    orders, entropies = [], []
    for tau in (0.1, 1.0, 10.0):
        _, w = look_up(q, k, k, scale=0.5 / tau)
        orders.append((k @ q)[w.argsort()].tolist())
        assert w.sort().values.diff().ge(0).all()
        entropies.append(-(w * w.clamp_min(1e-300).log()).sum().item())
    assert entropies == sorted(entropies)
    assert orders[1] == orders[2] == sorted(orders[1])


def test_a_mixer_has_a_temperature():
    x = torch.randn(1, 9, 8)
    for score in ("scaled_dot", "additive"):
        cold, warm = (mixers.create("attention", 8, score=score, temperature=t) for t in (0.5, 2.0))
        warm.load_state_dict(cold.state_dict())
        (_, a), (_, b) = (seen_by(lambda m=m: m(x)) for m in (cold, warm))
        entropy = [-(w * w.clamp_min(1e-30).log()).sum() for w in (a, b)]
        assert entropy[0] < entropy[1]
    with pytest.raises(UserError, match="temperature must be positive"):
        mixers.create("attention", 8, temperature=0.0)


def test_queries_and_keys_are_one_bilinear_form():
    d = 6
    layer = mixers.create("attention", d, n_heads=1, d_key=3, d_value=5, position="none", causal=False).double()
    x = torch.randn(2, 7, d, dtype=torch.float64)
    q, k, v = layer.qkv.weight.split([3, 3, 5])
    form = q.T @ k  # d x d
    y = torch.softmax(x @ form @ x.transpose(1, 2) / math.sqrt(3), -1) @ x @ v.T @ layer.out.weight.T
    assert (layer(x)[0] - y).abs().max() <= 1e-10


def test_free_widths():
    layer = mixers.create("attention", 8, n_heads=2, d_key=3, d_value=5, bias=True)
    assert sum(p.numel() for p in layer.qkv.parameters()) == 2 * (8 * (2 * 3 + 5) + 2 * 3 + 5)
    assert mixers.create("attention", 8, n_heads=1, d_key=3, d_value=5).qkv.weight.numel() == 8 * (2 * 3 + 5)
    assert layer(torch.randn(1, 4, 8))[0].shape == (1, 4, 8)


@pytest.mark.parametrize("score", ["dot", "scaled_dot", "bilinear", "additive", "callable"])
def test_any_score(score):
    q, k, v = qkv(T=5)
    w = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    W = torch.randn(2, 4, 4, dtype=torch.float64, requires_grad=True)
    how = {
        "dot": dict(scale=1.0),
        "scaled_dot": {},
        "bilinear": dict(score=lambda q, k: torch.einsum("bthk,hkj,bshj->bhts", q, W, k)),
        "additive": dict(score=additive(w)),
        "callable": dict(score=lambda q, k: -(torch.cdist(q.transpose(1, 2), k.transpose(1, 2)) ** 2)),
    }[score]
    assert torch.autograd.gradcheck(lambda *x: attention(*x, **how), (q, k, v))
    if score == "additive":
        y = attention(q, k, v, ALL, **how)[1, 2, 1]
        e = torch.stack([w[1] @ torch.tanh(q[1, 2, 1] + k[1, s, 1]) for s in range(5)])
        assert (y - torch.softmax(e, 0) @ v[1, :, 1]).abs().max() < 1e-12
    y, weights = seen_by(lambda: attention(q, k, v, **how))
    assert (weights.triu(1) == 0).all()
    mask = torch.tensor([True, False, True, False, False]).expand(2, 5, 5)
    y = attention(q, k, v, Pattern(causal=False, mask=mask), **how)
    for grad in torch.autograd.grad(y.sum(), (k, v)):
        assert not grad[:, [1, 3, 4]].any()


def test_the_bilinear_mixer_scores_by_its_form():
    layer = mixers.create("attention", 8, n_heads=2, score="bilinear", position="none").double()
    torch.nn.init.normal_(layer.form)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    q, k, _ = layer.qkv(x).unflatten(-1, (3, 2, 4)).unbind(2)
    _, w = seen_by(lambda: layer(x))
    scores = torch.einsum("bthk,hkj,bshj->bhts", q, layer.form, k)
    wanted = torch.softmax(scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf), -1)
    assert (w - wanted).abs().max() < 1e-12


def test_heads_are_single_heads_beside_one_another():
    layer = mixers.create("attention", 12, n_heads=3, position="none").double()
    x, total = torch.randn(2, 7, 12, dtype=torch.float64), 0
    for h in range(3):
        one = mixers.create("attention", 12, n_heads=1, d_key=4, position="none").double()
        with torch.no_grad():
            one.qkv.weight.copy_(layer.qkv.weight.view(3, 3, 4, 12)[:, h].flatten(0, 1))
            one.out.weight.copy_(layer.out.weight[:, 4 * h : 4 * h + 4])
        total = total + one(x)[0]
    assert (layer(x)[0] - total).abs().max() <= 1e-12


def test_both_ways_every_token_sees_every_real_token():
    layer = mixers.create("attention", 8, causal=False).double()
    x = torch.randn(1, 6, 8, dtype=torch.float64, requires_grad=True)
    y, _ = layer(x, None, torch.tensor([4]))
    for t in range(4):
        (g,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        assert g[0, :4].abs().sum(-1).gt(0).all()
        assert not g[0, 4:].any()


def test_memory_is_projected_once_and_its_pads_are_never_seen():
    layer = mixers.create("cross", 8, n_heads=2).double()
    memory, x = torch.randn(2, 5, 8, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    calls = []
    layer.kv.register_forward_hook(lambda *_: calls.append(1))
    state = layer.init_state(2, memory, torch.tensor([5, 2]))
    (y, state), w = seen_by(lambda: layer(x, state))
    layer(x, state)
    assert len(calls) == 1
    assert (w[1, :, :, 2:] == 0).all()
    k, v = layer.kv(memory[1:, :2]).unflatten(-1, (2, 2, 4)).unbind(2)
    alone = attention(layer.q(x[1:]).unflatten(-1, (2, 4)), k, v, ALL)
    assert (y[1:] - layer.out(alone.flatten(2))).abs().max() < 1e-12


@pytest.mark.parametrize("form", ["reference", "torch.fused"])
def test_masks(form):
    q, k, v = qkv(B=1, T=5, H=1)
    mask = torch.tensor([[1, 0, 1, 1, 0]] * 4 + [[0] * 5]).bool()[None]
    M = torch.where(mask, 0.0, -torch.inf)[0].double()
    with lw.ops.use(form):
        y = attention(q, k, v, Pattern(causal=False, mask=mask))
    QK = q[0, :, 0] @ k[0, :, 0].T
    for scores in ((QK + M) / 2, QK / 2 + M):  # inside the scaling and outside
        assert (y[0, :4, 0] - (torch.softmax(scores, -1) @ v[0, :, 0])[:4]).abs().max() <= 1e-12
    assert (y[0, 4] == 0).all()
    gq, gk, gv = torch.autograd.grad(y.sum(), (q, k, v))
    assert gq.isfinite().all()
    assert not gq[0, 4].any()
    assert not gk[0, [1, 4]].any()
    assert not gv[0, [1, 4]].any()
    w = weigh(QK / 2, mask[0])
    assert (w[~mask[0]] == 0.0).all()


def test_a_step_at_a_time_is_all_at_once():
    layer = mixers.create("attention", 8)
    x = torch.randn(2, 30, 8)
    state, steps = layer.init_state(2), []
    with torch.no_grad():
        whole, _ = layer(x)
        for t in range(30):
            y, state = layer(x[:, t : t + 1], state)
            steps.append(y)
    assert (torch.cat(steps, 1) - whole).abs().max() <= 1e-5


def test_weights_are_read_out_where_asked():
    model = lw.create_model("lm", d_model=16, n_layers=2)
    tokens = torch.randint(256, (2, 9))
    with recording(model) as tape:
        model(tokens)
    weights = [w for name, w in tape.items() if name.endswith("mixer/weights")]
    assert [tuple(w.shape) for w in weights] == [(2, 4, 9, 9)] * 2
    assert all((w.sum(-1) - 1).abs().max() <= 1e-6 for w in weights)
    q, k, v = qkv(T=64)
    assert attention.choose(q, k, v).name == "torch.fused"  # which never holds the weights
    with recording():
        assert attention.choose(q, k, v).name == "torch.weights"


READ = dict(attention={}, cross={}, mla={}, longformer={}, bigbird={}, additive={}, lstmn={}, sparse_transformer={})
READ |= dict(show_attend_tell={})
READ |= {"attention ": dict(window=3), "sparse_transformer ": dict(kind="fixed"), "longformer ": dict(n_global=0)}


@pytest.mark.parametrize("name", READ)
def test_every_attention_layer_can_be_read(name):
    layer = mixers.create(name.strip(), 8, **READ[name])
    x = torch.randn(2, 48, 8)
    state = layer.init_state(2, torch.randn(2, 5, 8)) if name in ("cross", "additive", "show_attend_tell") else None
    quiet, _ = layer(x, state)
    with recording() as tape:
        read, _ = layer(x, state)
    assert (quiet - read).abs().max() < 1e-5  # whoever looks changes nothing
    for weights in tape.values():
        assert weights.shape[0] == 2
        assert weights.shape[3] == (5 if state is not None else 48)
        total = weights.sum(-1)
        assert ((total - 1).abs() <= 1e-6).logical_or(total == 0).all()  # or nothing is seen
    assert tape["weights"].shape[2] == 48


def test_outputs_lie_in_the_hull_of_the_values():
    """Without a residual. With one the coefficients sum to 2, so that "a convex combination" would not be literal."""
    q, k, v = qkv(B=1, T=8, H=1, V=3)
    y = attention(q, k, v, ALL).detach()[0, :, 0].numpy()
    values = v.detach()[0, :, 0].numpy()
    for out in y:
        equal = np.vstack([values.T, np.ones(8)])
        assert scipy.optimize.linprog(np.zeros(8), A_eq=equal, b_eq=[*out, 1], bounds=(0, None)).success
    far = np.append(values.max(0) + 1, 1)
    assert not scipy.optimize.linprog(np.zeros(8), A_eq=equal, b_eq=far, bounds=(0, None)).success


@pytest.mark.parametrize("T", [1, 7, 16, 33])
@pytest.mark.parametrize("window", [1, 3, 5, 8])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_is_a_mask_on_full_attention(T, window, causal):
    layer = mixers.create("attention", 8, window=window, causal=causal)
    x, lengths = torch.randn(2, T, 8), torch.tensor([T, T // 2])
    y, _ = layer(x, None, lengths)
    q, k, v = layer.qkv(x).unflatten(-1, (3, 4, 2)).unbind(2)
    pos = torch.arange(T)
    q, k = rotate(q, pos[None]), rotate(k, pos[None])
    gap = pos[:, None] - pos
    near = ((gap >= 0) | (not causal)) & (gap.abs() < window) & (pos < lengths[:, None, None])
    wanted = attention(q, k, v, Pattern(causal=False, mask=near))
    for b, n in enumerate(lengths.tolist()):
        assert n == 0 or (y[b, :n] - layer.out(wanted.flatten(2))[b, :n]).abs().max() <= 1e-6


def saved_bytes(run):
    """What autograd keeps for the backward pass: the memory that training needs."""
    kept = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: (kept.__setitem__(t.untyped_storage().data_ptr(), t.untyped_storage().nbytes()), t)[1], lambda t: t
    ):
        y = run()
    del y
    return sum(kept.values())


def test_a_windows_memory_is_linear():
    layer = mixers.create("attention", 16, window=16)
    one, four = (saved_bytes(lambda T=T: layer(torch.randn(1, T, 16))[0]) for T in (512, 2048))
    assert four <= 1.1 * 4 * one


def test_sinusoids():
    d = 64
    table = sinusoids(torch.arange(8192)[None], d)[0].double()
    pos, i = np.arange(8192)[:, None], np.arange(d // 2)
    angle = pos / 10000 ** (2 * i / d)
    wanted = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(8192, d)
    assert np.abs(table.numpy() - wanted).max() <= 1e-6
    assert table[0].tolist() == [0.0, 1.0] * (d // 2)
    k = 17  # PE(pos + k) is PE(pos) turned, the same way at every position
    turn = torch.tensor(10000.0 ** (-2 * i / d) * k)
    pairs, ahead = table[:-k].unflatten(1, (-1, 2)), table[k:].unflatten(1, (-1, 2))
    turned = torch.stack([pairs[..., 0] * turn.cos() + pairs[..., 1] * turn.sin(),
                          pairs[..., 1] * turn.cos() - pairs[..., 0] * turn.sin()], -1)  # fmt: skip
    assert (turned - ahead).abs().max() <= 1e-6


def test_sinusoids_counted_from_one_and_concatenated():
    first = sinusoids(torch.tensor([[3]]), 8, offset=1)[0, 0]
    assert first[0].item() == pytest.approx(math.sin(3 / 10000 ** (2 / 8)), abs=1e-6)
    assert first[2].item() == pytest.approx(math.sin(3 / 10000 ** (4 / 8)), abs=1e-6)
    layer = mixers.create("positions", 8, combine="concat", offset=1)
    x = torch.randn(1, 4, 8)
    p = sinusoids(torch.arange(4)[None], 8, offset=1).float()
    assert (layer(x)[0] - torch.cat([x, p], -1) @ layer.join.weight.T).abs().max() < 1e-6
    plain = mixers.create("positions", 8)
    assert torch.equal(
        plain(x)[0], sinusoids(torch.arange(4)[None], 8).float()
    )  # the default: added, counted from zero


def test_learned_positions():
    layer = mixers.create("positions", 8, kind="learned", longest=6)
    layer(torch.randn(2, 4, 8))[0].sum().backward()
    assert layer.table.grad[:4].abs().sum(-1).all()
    assert not layer.table.grad[4:].any()
    with pytest.raises(UserError, match="has 6 rows, the sequence has token 7"):
        layer(torch.randn(1, 7, 8))


def order_matters(layer):
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    order = torch.randperm(9)
    return (layer(x[:, order])[0] - layer(x)[0][:, order]).abs().max() > 1e-6


def test_without_positions_attention_is_blind_to_order():
    torch.manual_seed(1)
    options = dict(n_heads=2, causal=False)
    blind = mixers.create("attention", 8, position="none", **options).double()
    assert not order_matters(blind)
    for position in ("rope", "alibi", "t5"):
        layer = mixers.create("attention", 8, position=position, **options).double()
        if position == "t5":
            torch.nn.init.normal_(layer.table)
        assert order_matters(layer), position
    for kind in ("sinusoidal", "learned"):
        first = mixers.create("positions", 8, kind=kind).double()
        assert order_matters(lambda x, first=first: blind(x + first(x)[0])), kind


SCHEMES = {
    "sinusoidal": [Spec("branch", mixer=Spec("positions"), norm="none"), Spec("attention", position="none")],
    "learned": [Spec("branch", mixer=Spec("positions", kind="learned", longest=64), norm="none"),
                Spec("attention", position="none")],
    **{name: [Spec("attention", position=name)] for name in ("rope", "alibi", "t5", "none")},
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMES)
def test_position_schemes_are_interchangeable(name):
    torch.manual_seed(0)
    model = lw.create_model(Spec("language_model", d_model=8, blocks=SCHEMES[name]))
    tokens = torch.randint(256, (1, 64))
    changed = tokens.clone()
    changed[:, 40:] = 0
    a, b = model(tokens)[0], model(changed)[0]  # eight times as long as what it is trained on below
    assert torch.equal(a[:, :40], b[:, :40])
    model.loss(tokens[:, :8], tokens[:, 1:9]).backward()
    assert model(tokens)[0].isfinite().all()


@pytest.mark.parametrize("kind", ["linear", "yarn", "llama3", "ntk"])
def test_rotary_scalings_are_those_of_transformers(kind):
    options = dict(factor=4.0) if kind in ("linear", "ntk") else dict(factor=4.0, trained=2048)
    theirs = dict(rope_type=kind, factor=4.0, rope_theta=10000.0)
    length = None
    if kind == "ntk":  # theirs changes with the length: at four times the trained one, with factor 1, it is ours
        theirs, length = dict(rope_type="dynamic", factor=1.0, rope_theta=10000.0), 4 * 2048
    if kind in ("yarn", "llama3"):
        theirs |= dict(original_max_position_embeddings=2048)
    if kind == "llama3":
        theirs |= dict(low_freq_factor=1.0, high_freq_factor=4.0)
    about = LlamaConfig(hidden_size=64, num_attention_heads=1, max_position_embeddings=2048, rope_parameters=theirs)
    rates, gain = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](about, "cpu", seq_len=length)
    x, pos = torch.ones(1, 1, 1, 64), torch.tensor([[3]])
    y = rotate(x, pos, 10000.0, Spec(kind, **options))[0, 0, 0]
    angle = 3 * rates
    wanted = torch.cat([angle.cos() - angle.sin(), angle.cos() + angle.sin()]) * gain
    assert (y - wanted).abs().max() < 1e-5
    report = check(lambda d: mixers.create("attention", d, rope_scaling=Spec(kind, **options)), dtypes=(torch.float64,))
    assert report.ok, f"\n{report}"


def test_a_wrong_scaling_is_put_right():
    with pytest.raises(UserError, match="did you mean 'yarn'"):
        mixers.create("attention", 8, rope_scaling=Spec("yarm", factor=2.0))
    with pytest.raises(UserError, match="needs the option 'trained'"):
        mixers.create("attention", 8, rope_scaling=Spec("yarn", factor=2.0))
