"""Encoders at work: sentence embeddings, pretraining on pairs, new heads, hierarchies."""

import json
import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data.tokens import tokens_of
from longwave.embed import reading_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.models.weights.hub import fetch
from longwave.ops.loss import IGNORE
from longwave.ops.ragged import to_the_right
from longwave.spec import Spec
from longwave.tasks.sentence_pairs import CLS, SEP

RELATED = ["A man is eating food.", "The girl is carrying a baby.", "A man is eating a piece of bread."]


@pytest.fixture(scope="module")
def minilm():
    try:
        fetch("minilm")
    except UserError as missing:
        pytest.skip(str(missing))
    return lw.load("minilm")


def test_minilm_ranks_what_is_related_first(minilm, capsys, tmp_path):
    vectors = lw.embed(minilm, RELATED)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))
    alone = torch.cat([lw.embed(minilm, [text]) for text in RELATED])
    torch.testing.assert_close(alone, vectors, rtol=0, atol=1e-6)  # padding is inert
    assert main(["embed", "minilm", *RELATED, "--out", str(tmp_path / "v.npy")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(maxsplit=1)[1] for line in lines[1:]] == [RELATED[2], RELATED[1]]
    assert float(lines[1].split()[0]) > 0.7
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), vectors, atol=1e-6)


QUESTIONS = {  # each beside the text that answers it
    "How do plants make their food?": "Photosynthesis turns sunlight, water and carbon dioxide into sugar.",
    "What is the capital of France?": "Paris is the seat of the French government.",
    "Who painted the Mona Lisa?": "Leonardo da Vinci's portrait of a smiling woman hangs in the Louvre.",
    "Why is the sky blue?": "Air scatters short wavelengths of light more than long ones.",
    "How can I bake bread at home?": "Knead flour, yeast and water, let the dough rise, then put it into the oven.",
    "What causes earthquakes?": "Tectonic plates slip along faults and the ground shakes.",
    "How do vaccines work?": "They show the immune system a harmless piece of a virus so that it learns to fight it.",
    "Which animal is the fastest on land?": "A cheetah runs at up to 110 kilometres an hour.",
    "How do I change a flat tyre?": "Loosen the nuts, jack up the car, and mount the spare wheel.",
    "When did the Second World War end?": "Germany surrendered in May 1945, Japan in September.",
    "What is inflation?": "When prices rise, money buys less than it did a year before.",
    "How does a bicycle stay upright?": "Steering into a fall keeps the wheels under the rider.",
    "How is cheese made?": "Milk is curdled with rennet, pressed and left to ripen.",
    "Why do cats purr?": "Felines vibrate their larynx when they are content, and to calm themselves.",
    "What does a compiler do?": "It translates source code of a program into machine instructions.",
    "How is the piano played?": "Pressing the keys lets hammers strike strings; pedals hold the notes.",
    "Why do leaves turn red in autumn?": "Trees break down chlorophyll before winter, and other pigments show.",
    "What are black holes?": "Collapsed stars whose gravity lets not even light escape.",
    "How should I water my tomatoes?": "Vegetables in the garden want a deep soak at their roots each morning.",
    "Who wrote Hamlet?": "Shakespeare's tragedy of the Danish prince was first played about 1600.",
}  # fmt: skip


def test_minilm_finds_the_answer_to_a_question(minilm):
    found = lw.embed(minilm, list(QUESTIONS)) @ lw.embed(minilm, list(QUESTIONS.values())).T
    assert (found.argmax(1) == torch.arange(len(QUESTIONS))).float().mean() >= 0.95  # recall at 1


def test_minilm_is_that_of_transformers(minilm):
    from transformers import AutoModel, AutoTokenizer

    folder = fetch("minilm")
    theirs, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(RELATED, padding=True, return_tensors="pt")
    with torch.no_grad():
        h = theirs(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    wanted = F.normalize((h * mask).sum(1) / mask.sum(1), dim=1)
    torch.testing.assert_close(lw.embed(minilm, RELATED), wanted, rtol=0, atol=1e-5)
    said = reading_of(minilm)
    assert (said.pool, said.unit, said.most) == ("mean", True, 256)
    tokens = tokens_of(folder)
    long = tokens.prompt("word " * 1000, 256)
    assert len(long) == 256
    assert (long[0], long[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)


def small_bert(folder):
    """A random BERT with a WordPiece tokenizer and the files of sentence-transformers beside it."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "##d"])}
    made = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    made.enable_padding(length=9)  # as MiniLM's file asks for; texts are as long as they are
    model = lw.create_model("bert", d_model=8, n_layers=2, n_heads=2, context=16, vocab=8, head="pooled").eval()
    lw.save(model, folder / "run")
    weights.export(folder / "run", folder / "hf")
    made.save(str(folder / "hf" / "tokenizer.json"))
    parts = [dict(idx=0, path="", type="sentence_transformers.models.Transformer"),
             dict(idx=1, path="1_Pooling", type="sentence_transformers.models.Pooling")]  # fmt: skip
    (folder / "hf" / "modules.json").write_text(json.dumps(parts))
    (folder / "hf" / "1_Pooling").mkdir()
    (folder / "hf" / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (folder / "hf" / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 4}))
    return folder / "hf"


def test_what_lies_beside_the_weights_is_obeyed(tmp_path):
    found = small_bert(tmp_path)
    weights.bring(found, tmp_path / "ours")  # takes the files along
    model = lw.load(tmp_path / "ours").eval()
    h, _ = model.hidden(torch.tensor([[2, 4, 5, 3]]))
    torch.testing.assert_close(lw.embed(model, ["a b c cd"]), h[:, 0])
    assert not torch.allclose(lw.embed(model, ["a b c cd"], pool="mean", unit=True), h[:, 0])

    for file, text, words in (
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pools by one of"),
        ("modules.json", [{"type": "x.Dense", "path": "2"}], "not 'Dense'"),
        ("modules.json", [{"type": "x.Pooling", "path": "../x"}], "does not lie beside"),
        ("modules.json", {"a": 1}, "does not list the parts"),
        ("sentence_bert_config.json", {"max_seq_length": "long"}, "max_seq_length"),
    ):
        shutil.copytree(tmp_path / "ours", tmp_path / "bad")
        (tmp_path / "bad" / file).write_text(json.dumps(text))
        with pytest.raises(UserError, match=words):
            lw.embed(lw.load(tmp_path / "bad"), ["a"])
        shutil.rmtree(tmp_path / "bad")


def test_what_embed_refuses(tmp_path, capsys):
    lm = lw.create_model("lm", d_model=8, n_layers=1, mixer="gru")
    assert lw.embed(lm, ["x", "longer"], pool="last").shape == (2, 8)
    with pytest.raises(UserError, match="a list of texts"):
        lw.embed(lm, "one text")
    with pytest.raises(UserError, match="does not read texts"):
        lw.embed(lw.create_model("classifier", n_classes=2, d_input=1, d_model=8, n_layers=1), ["x"])
    with pytest.raises(UserError, match="the tokenizer has 256 tokens, the model 40"):
        lw.embed(lw.create_model("lm", d_model=8, n_layers=1, mixer="gru", vocab=40), ["x"])
    (tmp_path / "empty").write_text("\n")
    assert main(["embed", "minilm", str(tmp_path / "empty")]) == 2
    assert "no text to embed" in capsys.readouterr().err


def test_pairs_of_sentences_are_what_bert_is_trained_on(tmp_path):
    (tmp_path / "text").write_text("".join(f"line {i} of a text that goes on. " for i in range(900)))
    task = tasks.create("sentence_pairs", {"data": str(tmp_path / "text")}, context=67, batch=64, seed=0)
    tokens, types, hidden, strange = task.batch(3)
    assert tokens.shape == types.shape == hidden.shape == (64, 67)
    marks = (tokens >= CLS).nonzero()[:, 1].view(64, 3)
    assert marks.unique(dim=0).tolist() == [[0, 33, 66]]
    assert tokens[0, [0, 33, 66]].tolist() == [CLS, SEP, SEP]
    assert types[0].tolist() == [0] * 34 + [1] * 33
    chosen = hidden != IGNORE
    assert float(chosen.float().mean()) == pytest.approx(0.15, abs=0.02)
    assert not chosen[:, [0, 33, 66]].any()
    assert 0.3 < float(strange.float().mean()) < 0.7
    original = torch.where(chosen, hidden, tokens)
    raw = task.windows.at(3)
    follows = (original[:, 34:66] == torch.from_numpy(raw[:, 32:])).all(1)
    assert torch.equal(follows, strange == 0)

    model = lw.create_model("bert", head="pretrain", d_model=16, n_layers=1, n_heads=2, vocab=SEP + 1, context=67)
    task.check(model)
    lost, count = task.loss(model.eval(), task.batch(0))
    (guesses, pair), _ = model(task.batch(0)[0], types=task.batch(0)[1])
    hidden, strange = task.batch(0)[2:]
    wanted = F.cross_entropy(guesses.mT, hidden, ignore_index=IGNORE) + F.cross_entropy(pair, strange)
    torch.testing.assert_close(lost / count, wanted)
    with torch.no_grad():
        assert {"loss", "bits_per_masked_byte", "pairs_told_apart"} == set(task.validate(model, quick=True))


def test_bert_guesses_masked_bytes_at_the_command_line(tmp_path, capsys):
    small = ["--d-model", "8", "--n-layers", "1", "--n-heads", "2", "--context", "16", "--batch", "2", "--steps", "2"]
    (tmp_path / "text").write_text("a text that goes on and on. " * 90)
    common = ["train", "--task", "masked", "--model", "bert", "--data", str(tmp_path / "text"), *small]
    assert main([*common, "--out", str(tmp_path / "run")]) == 0
    model = lw.load(tmp_path / "run")
    assert not model.training  # as published weights are
    assert model.spec.options["vocab"] == 257
    assert main([*common, "--head", "classify", "--out", str(tmp_path / "other")]) == 2
    assert "a head that guesses each token" in capsys.readouterr().err


def test_a_guess_does_not_see_what_was_hidden():
    """The answer at a masked place depends on the mask token there, not on what the mask covers; and on both sides."""
    model = lw.create_model("bert", d_model=8, n_layers=2, n_heads=2, vocab=40, context=16).eval().double()
    tokens = torch.randint(38, (1, 9))
    tokens[0, 4] = 39  # the mask
    loss = lambda covered: model.loss(tokens, torch.full((1, 9), IGNORE).index_fill(1, torch.tensor([4]), covered))  # noqa: E731
    logits = model(tokens)[0][0, 4]
    for covered in (3, 7):
        torch.testing.assert_close(loss(covered), -logits.log_softmax(-1)[covered])
    x = model.embed(tokens).detach().requires_grad_()
    model.backbone(x)[0][0, 4, 0].backward()
    assert x.grad[0].abs().sum(-1).all()


def test_an_encoder_is_torchs_with_the_same_weights():
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 12, 0.0, F.gelu, batch_first=True, norm_first=True)
    stack = torch.nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False).eval()
    layer = [Spec("attention", n_heads=2, causal=False, position="none", bias=True),
             Spec("ffn", kind="gelu", d_hidden=12, bias=True)]  # fmt: skip
    for residual in ("pre", "post"):
        for each in stack.layers:
            each.norm_first = residual == "pre"
        ours = lw.create_model(Spec("sequence_model", d_model=8, d_input=8, norm="layer", residual=residual,
                                    head=Spec("none"), blocks=[layer] * 2)).eval()  # fmt: skip
        for mine, right in zip(ours.backbone.parts(), stack.layers, strict=True):
            for name, value in {"0.mixer.qkv.weight": right.self_attn.in_proj_weight,
                                "0.mixer.qkv.bias": right.self_attn.in_proj_bias}.items():  # fmt: skip
                mine.get_parameter(name).data.copy_(value)
            for name, part in {"0.mixer.out": right.self_attn.out_proj, "1.mixer.project": right.linear1,
                               "1.mixer.out": right.linear2, "0.norm": right.norm1,
                               "1.norm": right.norm2}.items():  # fmt: skip
                mine.get_submodule(name).load_state_dict(part.state_dict())
        x, lengths = torch.randn(3, 7, 8), torch.tensor([7, 2, 5])
        pads = torch.arange(7) >= lengths[:, None]
        wanted = stack(x, src_key_padding_mask=pads)
        if residual == "pre":
            wanted = F.layer_norm(wanted, (8,))
        got = ours.backbone(torch.where(pads[..., None], torch.nan, x), None, lengths)[0]
        torch.testing.assert_close(got[~pads], wanted[~pads], rtol=0, atol=1e-5)


def test_a_new_head_on_what_was_pretrained(tmp_path):
    lm = lw.create_model("gpt2", d_model=16, n_layers=1, n_heads=2, context=32, vocab=40)
    lw.save(lm, tmp_path / "lm")
    model = lw.load(tmp_path / "lm", head=Spec("classify", n_classes=2, pool="last"))
    tokens, lengths = torch.randint(40, (32, 8)), torch.randint(2, 9, (32,))
    last = lm.eval().hidden(tokens)[0][torch.arange(32), lengths - 1]
    torch.testing.assert_close(model(tokens, None, lengths)[0], model.head.out(last))
    left = torch.stack([row.roll(8 - int(n)) for row, n in zip(tokens, lengths, strict=True)])
    mask = torch.arange(8) >= 8 - lengths[:, None]
    torch.testing.assert_close(model(*_ragged(left, mask))[0], model(tokens, None, lengths)[0])

    labels = (tokens[:, 0] < 20).long()
    both = lw.load(tmp_path / "lm", head=Spec("classify", n_classes=2, pool="last"), language=0.5)
    next_ones = [lm.loss(tokens[b : b + 1, : n - 1], tokens[b : b + 1, 1:n]) for b, n in enumerate(lengths.tolist())]
    alone = F.cross_entropy(both.head.out(last), labels, reduction="none")
    wanted = alone + 0.5 * torch.stack(next_ones)
    for reduction, sum_of in (("mean", wanted.mean()), ("sum", wanted.sum())):
        torch.testing.assert_close(both.loss(tokens, labels, lengths, reduction=reduction), sum_of)
    torch.testing.assert_close(both.loss(tokens, labels, lengths, chunk=3), wanted.mean())

    scores = {}
    for which in ("frozen", "whole"):
        tuned = lw.load(tmp_path / "lm", head=Spec("classify", n_classes=2, pool="last")).train()
        optimizer = torch.optim.AdamW((tuned if which == "whole" else tuned.head).parameters(), 1e-2)
        for _ in range(60):
            optimizer.zero_grad()
            loss = tuned.loss(tokens, labels, lengths)
            loss.backward()
            optimizer.step()
        scores[which] = float((tuned.eval()(tokens, None, lengths)[0].argmax(-1) == labels).float().mean())
    assert scores["whole"] > max(0.95, scores["frozen"])

    bert = lw.create_model("bert", d_model=8, n_layers=1, n_heads=2, context=16, vocab=40, head="pooled")
    lw.save(bert, tmp_path / "bert")
    tuned = lw.load(tmp_path / "bert", head=Spec("classify", n_classes=3, pool="first", dense=True))
    assert torch.equal(tuned.head.dense.linear.weight, bert.head.dense.linear.weight)
    with pytest.raises(UserError, match="did you mean 'classify'"):
        lw.load(tmp_path / "bert", head=Spec("clasify", n_classes=3))
    with pytest.raises(UserError, match="read forwards"):
        lw.load(tmp_path / "bert", head=Spec("classify", n_classes=3), language=0.5)


def test_what_was_pretrained_needs_fewer_labels(tmp_path):
    """Words of two topics: texts without labels say which go together, eight labelled ones show but a few of them."""

    def texts(count):
        topic = torch.randint(2, (count,))
        return 20 * topic[:, None] + torch.randint(20, (count, 10)), topic

    def step(optimizer, loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    lm = lw.create_model("lm", mixer="gru", d_model=16, n_layers=1, vocab=40)
    optimizer = torch.optim.AdamW(lm.parameters(), 1e-2)
    for _ in range(80):
        tokens, _ = texts(32)
        step(optimizer, lm.loss(tokens[:, :-1], tokens[:, 1:]))
    lw.save(lm, tmp_path / "pretrained")
    lw.save(lw.create_model(lm.spec), tmp_path / "fresh")
    few, unseen, scores = texts(8), texts(400), {}
    for name in ("pretrained", "fresh"):
        model = lw.load(tmp_path / name, head=Spec("classify", n_classes=2, pool="last")).train()
        optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
        for _ in range(40):
            step(optimizer, model.loss(*few))
        scores[name] = float((model.eval()(unseen[0])[0].argmax(-1) == unseen[1]).float().mean())
    assert scores["pretrained"] > scores["fresh"] + 0.02
    assert scores["pretrained"] > 0.97


def test_bert_with_another_mixer_reads_both_ways():
    model = lw.create_model("bert", mixer="mamba", d_model=8, n_layers=2, context=16, vocab=40, dropout=0.0).double()
    tokens, lengths = torch.randint(40, (2, 9)), torch.tensor([9, 4])
    answer, _ = model(tokens, None, lengths)
    torch.testing.assert_close(model(tokens[1:, :4])[0], answer[1:, :4])
    x = model.embed(tokens).detach().requires_grad_()
    model.backbone(x)[0][0, 4, 0].backward()
    assert x.grad[0].abs().sum(-1).all()
    hidden = torch.where(torch.rand(2, 9) < 0.5, tokens, IGNORE)
    optimizer = torch.optim.AdamW(lw.param_groups(model, lr=1e-2, decay=0.0))
    losses = []
    for _ in range(15):
        losses.append(model.loss(tokens, hidden, lengths))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.8 * losses[0]


def _ragged(tokens, mask):
    tokens, lengths = to_the_right(tokens, mask)
    return tokens, None, lengths


def test_a_hierarchy_is_its_two_levels_by_hand():
    model = lw.create_model("hierarchy", d_model=16, n_classes=3, piece=8).eval()
    lengths = torch.tensor([[5, 8, 1], [8, 3, 0]])
    documents = torch.randint(256, (2, 3, 8))
    answer, _ = model(documents, None, lengths)
    for b, row in enumerate(lengths.tolist()):
        vectors = []
        for n, length in enumerate(filter(None, row)):
            h, _ = model.lower(model.embed(documents[b : b + 1, n, :length]))
            vectors.append(h.mean(1))
        h, _ = model.upper(torch.stack(vectors, 1))
        torch.testing.assert_close(answer[b : b + 1], model.head(h)[0], rtol=0, atol=1e-5)
    model.loss(documents, torch.tensor([0, 2]), lengths).backward()
    assert all(p.grad is not None for p in model.parameters())
    flat = documents[1:].flatten(1)
    torch.testing.assert_close(model(flat, None, torch.tensor([11]))[0], answer[1:], rtol=0, atol=1e-5)
    with pytest.raises(UserError, match="sentences come first"):
        model(documents, None, torch.tensor([[5, 0, 1], [8, 3, 0]]))


def test_a_long_document_is_read_a_sentence_at_a_time():
    model = lw.create_model("hierarchy", d_model=8, n_lower=1, n_upper=1, piece=512, head="tag").eval()
    seen = []
    for level in (model.lower, model.upper):
        level.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0].shape[1]))
    with torch.no_grad():
        answer, _ = model(torch.randint(256, (1, 8192)))
    assert answer.shape == (1, 16, 2)
    assert max(seen) <= 512
