"""From one sequence to another: the encoder runs once, cached decoding is teacher forcing, and it learns."""

import pytest
import torch
import transformers

import longwave as lw
from longwave.errors import UserError
from longwave.generate.beam import beam_search
from longwave.mixer import valid
from longwave.models import weights
from longwave.models.presets.translation import transformer
from longwave.models.weights.families import fsmt, marian
from longwave.models.weights.names import piece
from longwave.record import recording
from longwave.spec import Spec
from longwave.tolerance import TOLERANCE, apart

START, END, LETTERS, LONGEST = 10, 11, 10, 5
PUBLISHED = ("marian", "fsmt", "fsmt of one vocabulary")
KINDS = {
    "post": dict(),
    "pre, rms": dict(norm="rms", residual="pre"),
    "recurrent": dict(
        residual="pre",
        encoder=[Spec("bidirectional", mixer="gru")],
        decoder=[Spec("additive"), [Spec("mamba"), Spec("cross")]],
    ),
}


def tiny(kind="post", **options):
    torch.manual_seed(0)
    spec = transformer(d_model=8, n_layers=2, n_heads=2, d_hidden=16, vocab=12, dropout=0.0)
    return lw.create_model(spec.but(**{**KINDS[kind], **options})).eval()


def pairs(count):
    """Words and the same backwards, between a beginning and an end."""
    source = torch.randint(LETTERS, (count, LONGEST))
    lengths = torch.randint(2, LONGEST + 1, (count,))
    mirrored = source.gather(1, (lengths[:, None] - 1 - torch.arange(LONGEST)).clamp_min(0))
    target = torch.full((count, LONGEST + 2), END)
    target[:, 0] = START
    target[:, 1:-1] = torch.where(valid(source, lengths), mirrored, END)
    return source, target, lengths, lengths + 2


@pytest.mark.parametrize("kind", KINDS)
def test_the_law_over_the_target(kind):
    """One call, pieces, and rows by themselves give the same logits, whatever stands in the pads."""
    model = tiny(kind).double()
    source, tokens = torch.randint(12, (3, 7)), torch.randint(12, (3, 9))
    lengths, ends = torch.tensor([7, 1, 4]), torch.tensor([9, 5, 0])
    whole, _ = model(tokens, model.init_state(source, lengths), ends)
    state, pieces = model.init_state(torch.where(valid(source, lengths), source, 3), lengths), []
    for start, stop in ((0, 1), (1, 2), (2, 6), (6, 9)):
        y, state = model(tokens[:, start:stop], state, (ends - start).clamp(0, stop - start))
        pieces.append(y)
    for b, (n, end) in enumerate(zip(lengths.tolist(), ends.tolist(), strict=True)):
        assert apart(torch.cat(pieces, 1)[b, :end], whole[b, :end]) < TOLERANCE[torch.float64]
        if end:
            alone, _ = model(tokens[b : b + 1, :end], model.init_state(source[b : b + 1, :n]))
            assert apart(whole[b, :end], alone[0]) < TOLERANCE[torch.float64]


@pytest.mark.parametrize("kind", KINDS)
def test_teacher_forcing_is_decoding(kind):
    """The loss of one pass, and its gradients, are those of token by token."""
    model = tiny(kind).double()
    source, target, lengths, ends = pairs(4)
    scored = model.log_prob(target, ends, given=source, given_lengths=lengths)
    state, total = model.init_state(source, lengths), torch.zeros(4).double()
    for t in range(target.shape[1] - 1):
        logits, state = model(target[:, t : t + 1], state)
        each = logits[:, 0].log_softmax(-1).gather(1, target[:, t + 1 :][:, :1])[:, 0]
        total = total + each * (t + 1 < ends)
    assert apart(scored, total) < TOLERANCE[torch.float64]
    first, second = (torch.autograd.grad(x.sum(), list(model.parameters())) for x in (scored, total))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_smoothing_is_that_of_torch():
    model = tiny().double()
    source, target, lengths, ends = pairs(4)
    logits, _ = model(target[:, :-1], model.init_state(source, lengths))
    real = valid(target[:, 1:], ends - 1)
    wanted = torch.nn.functional.cross_entropy(logits[real], target[:, 1:][real], label_smoothing=0.1)
    torch.testing.assert_close(model.loss(source, target, lengths, ends, smoothing=0.1), wanted)


def test_the_encoder_runs_once():
    model, calls = tiny(), []
    model.encoder.register_forward_hook(lambda *_: calls.append(1))
    state = model.init_state(torch.randint(10, (2, 5)))
    for _ in range(6):
        _, state = model(torch.full((2, 1), START), state)
    assert len(calls) == 1


def test_a_word_backwards_is_learned():
    torch.manual_seed(0)
    model = lw.create_model("transformer", d_model=32, n_layers=1, n_heads=4, d_hidden=64, vocab=12, dropout=0.0)
    optimizer = torch.optim.AdamW(lw.param_groups(model, lr=6e-3, decay=0.0), betas=(0.9, 0.98))
    steps = 300
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 6e-3 * min((step + 1) / 30, 1.0, 2 * (steps - step) / steps)
        optimizer.zero_grad()
        model.loss(*pairs(32), smoothing=0.1).backward()
        optimizer.step()
    model.eval()
    source, target, lengths, ends = pairs(100)
    state, token, said = model.init_state(source, lengths), target[:, :1], []
    with torch.no_grad():
        for _ in range(LONGEST + 1):
            logits, state = model(token, state)
            token = logits.argmax(-1)
            said.append(token)
    right = (torch.cat(said, 1) == target[:, 1:]) | ~valid(target[:, 1:], ends - 1)
    assert right.all(1).float().mean() >= 0.95


def test_what_cannot_be_is_told():
    with pytest.raises(UserError, match="what the encoder read"):
        tiny()(torch.zeros(1, 1, dtype=torch.long))
    with pytest.raises(UserError, match="looks the source up"):
        tiny(decoder=[Spec("attention")])
    with pytest.raises(UserError, match="must be causal"):
        tiny(decoder=[Spec("attention", causal=False), Spec("cross")])


def published(kind, folder):
    """A random model of transformers, and ours of its weights."""
    torch.manual_seed(0)
    both = dict(
        d_model=8, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=16, decoder_ffn_dim=16, init_std=0.4,
        encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=32, scale_embedding=True,
        pad_token_id=START, decoder_start_token_id=START, eos_token_id=END, forced_eos_token_id=None,
    )  # fmt: skip
    if kind == "marian":
        config = transformers.MarianConfig(vocab_size=12, activation_function="silu", **both)
        theirs = transformers.MarianMTModel(config).eval()
    else:
        languages = dict(src_vocab_size=15, tgt_vocab_size=12) if kind == "fsmt" else dict(tie_word_embeddings=True)
        config = transformers.FSMTConfig(**{**dict(src_vocab_size=12, tgt_vocab_size=12), **languages}, **both)
        theirs = transformers.FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():
        biases = [theirs.final_logits_bias] if kind == "marian" else []
        for p in [*(p for name, p in theirs.named_parameters() if "embed_positions" not in name), *biases]:
            p.add_(0.2 * torch.randn_like(p))
        if kind != "marian":  # never says a pad, which has no place there
            theirs.model.decoder.layers[-1].final_layer_norm.bias[0] = 5.0
            theirs.model.decoder.output_projection.weight[START] = -5.0 * torch.eye(8)[0]
    theirs.save_pretrained(folder)
    return theirs, lw.load(folder).eval()


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_ones_have_the_same_logits_and_beams(kind, tmp_path):
    theirs, ours = published(kind, tmp_path)
    source, tokens = torch.randint(10, (4, 7)), torch.randint(10, (4, 6))
    lengths = torch.tensor([7, 1, 4, 6])
    mask = valid(source, lengths).long()
    padded = torch.where(mask > 0, source, START)
    with torch.no_grad():
        wanted = theirs(input_ids=padded, attention_mask=mask, decoder_input_ids=tokens, use_cache=False).logits
        mine, _ = ours(tokens, ours.init_state(source, lengths))
    torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-5)
    start = START if kind == "marian" else END
    for penalty in (0.6, 1.0):
        said = theirs.generate(padded, attention_mask=mask, num_beams=4, max_new_tokens=12, length_penalty=penalty,
                               do_sample=False, decoder_start_token_id=start)[:, 1:]  # fmt: skip
        got = beam_search(ours, torch.full((4, 1), start), ours.init_state(source, lengths), end=END, max_tokens=12,
                          length_penalty=penalty, hasty=True)  # fmt: skip
        for row, right in zip(got, said.tolist(), strict=True):
            best = row[0].tokens
            assert best == right[: len(best)]
            assert set(right[len(best) :]) <= {START}  # pads


@pytest.mark.parametrize("kind", PUBLISHED)
def test_published_ones_in_and_out(kind, tmp_path):
    theirs, _ = published(kind, tmp_path / "theirs")
    assert weights.bring(tmp_path / "theirs", tmp_path / "ours").difference <= 1e-5
    ours = lw.load(tmp_path / "ours").eval()
    source, target = torch.randint(10, (3, 6)), torch.randint(10, (3, 5))
    whole, _ = ours(target, ours.init_state(source))
    state, pieces = ours.init_state(source), []
    for piece_ in target.split([2, 1, 1, 1], 1):  # a beginning, then token by token
        y, state = ours(piece_, state)
        pieces.append(y)
    wanted = theirs(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    for mine in (whole, torch.cat(pieces, 1)):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-5)

    weight = torch.randn_like(wanted)
    (wanted * weight).sum().backward()
    (whole * weight).sum().backward()
    right = {name: p.grad for name, p in theirs.named_parameters()
             if p.grad is not None and "embed_positions" not in name}  # fmt: skip
    family = marian if kind == "marian" else fsmt
    for name, p in ours.named_parameters():
        for their_name, grad in piece(family.names(ours)[name]).write(p.grad):
            if their_name in right:  # the bias a token is a buffer there
                torch.testing.assert_close(grad, right.pop(their_name), rtol=1e-4, atol=1e-4)
    assert not set(right) - set(family.TIED)

    assert weights.export(tmp_path / "ours", tmp_path / "back").difference <= 1e-5
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    answer = again(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    torch.testing.assert_close(answer, wanted, rtol=0, atol=1e-5)


def test_what_goes_through_one_state():
    """Without attention the decoder has what the encoder ended with, and nothing else."""
    for mixer in ("lstm", "gru"):
        model = lw.create_model("rnn_seq2seq", mixer=mixer, d_model=8, n_layers=2, vocab=12).double().eval()
        source, target = torch.randint(12, (3, 5)), torch.randint(12, (3, 4))
        lengths = torch.tensor([5, 1, 3])
        state = model.init_state(source, lengths)
        assert state.nbytes == model.init_state(source[:, :1]).nbytes
        wanted = model.encoder.init_state(3)
        for t in range(5):
            x = model.scale * model.embed(source[:, t : t + 1])
            _, wanted = model.encoder(x, wanted, (lengths > t).long())
        for a, b in zip(state.leaves(), wanted.leaves(), strict=True):
            torch.testing.assert_close(a, b)
        logits, _ = model(target[:, :-1], state)
        lost = torch.nn.functional.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        torch.testing.assert_close(model.loss(source, target, lengths), lost)
    with torch.device("meta"):  # Sutskever et al. 2014, section 3.4: 64 million in the recurrent layers, half in each
        sizes = [sum(p.numel() for p in part.parameters()) for model in [lw.create_model("rnn_seq2seq")]
                 for part in (model.encoder, model.decoder)]  # fmt: skip
    assert sum(sizes) == pytest.approx(64e6, rel=0.01) and sizes[0] == sizes[1]


def test_alignments_can_be_read():
    model = lw.create_model("rnn_attention", d_model=8, vocab=12).eval()
    source, target, lengths = torch.randint(12, (2, 5)), torch.randint(12, (2, 4)), torch.tensor([5, 2])
    with recording(model) as seen:
        model(target, model.init_state(source, lengths))
    (weights_,) = (value for name, value in seen.items() if name.endswith("mixer/weights"))
    assert weights_.shape == (2, 1, 4, 5)
    torch.testing.assert_close(weights_.sum(-1), torch.ones(2, 1, 4))
    assert not weights_[1, :, :, 2:].any()


def test_bytenets_decoder_stands_on_its_columns():
    """Causal over the target, and token t reads the source's column t however far the encoder sees."""
    model = lw.create_model("bytenet", d_model=8, n_sets=1, levels=1, vocab=12).double().eval()
    source, target = torch.randint(12, (1, 9)), torch.randint(12, (1, 6))
    before, _ = model(target, model.init_state(source))
    changed = source.clone()
    changed[0, 5] = (changed[0, 5] + 1) % 12
    after, _ = model(target, model.init_state(changed))
    moved = (before != after).any(-1)[0].tolist()
    assert moved == [False] * 4 + [True] * 2  # the encoder's taps reach one to each side, the decoder's two back
