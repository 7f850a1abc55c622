"""RWKV's own files: .pth in and out, a model of the authors that reverses numbers, the world tokenizer."""

import gzip
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import longwave as lw
from longwave.cli import main
from longwave.data.tokens import World, tokens_of
from longwave.errors import UserError
from longwave.models import weights
from longwave.parts.norm import make_norm
from test_parity import logits, twin

C, H, V, LAYERS = 8, 2, 40, 2
RANKS = dict(w=3, a=2, v=5, g=4)


def random_rwkv7() -> dict[str, torch.Tensor]:
    """Tensors under the authors' names, none of them at a value that hides a mistake."""
    made = {"emb.weight": (V, C), "head.weight": (V, C)}
    norms = ["ln_out", "blocks.0.ln0"]
    for i in range(LAYERS):
        at = f"blocks.{i}."
        norms += [f"{at}ln1", f"{at}ln2", f"{at}att.ln_x"]
        made |= {f"{at}att.{m}.weight": (C, C) for m in ("receptance", "key", "value", "output")}
        made |= {f"{at}ffn.key.weight": (24, C), f"{at}ffn.value.weight": (C, 24), f"{at}att.r_k": (H, C // H)}
        single = [f"att.x_{each}" for each in "rwkvag"] + ["att.k_k", "att.k_a", "ffn.x_k"]
        made |= {at + name: (1, 1, C) for name in [*single, *(f"att.{each}0" for each in "wav")]}
        made |= {f"{at}att.{each}1": (C, n) for each, n in RANKS.items()}
        made |= {f"{at}att.{each}2": (n, C) for each, n in RANKS.items()}
    made |= {f"{name}.{kind}": (C,) for name in norms for kind in ("weight", "bias")}
    return {name: torch.randn(shape) * 0.6 for name, shape in made.items()}


def plain(weights, tokens):
    """Logits of the equations of Peng et al. 2025, section 4, a token and a head at a time, in float64."""
    w = {name: t.double().squeeze() for name, t in weights.items()}
    first: dict[int, torch.Tensor] = {}
    x = [F.layer_norm(e, (C,), w["blocks.0.ln0.weight"], w["blocks.0.ln0.bias"]) for e in w["emb.weight"][tokens]]
    for i in range(LAYERS):
        p = {name.removeprefix(f"blocks.{i}."): t for name, t in w.items()}
        S, before, before_ffn = (
            torch.zeros(H, C // H, C // H).double(),
            torch.zeros(C).double(),
            torch.zeros(C).double(),
        )
        for t, residual in enumerate(x):
            z = F.layer_norm(residual, (C,), p["ln1.weight"], p["ln1.bias"])
            r, d, k, v, a, g = (z + (before - z) * p[f"att.x_{each}"] for each in "rwkvag")
            before = z
            r, k, nu = p["att.receptance.weight"] @ r, p["att.key.weight"] @ k, v
            v = p["att.value.weight"] @ v
            if i == 0:
                first[t] = v
            else:
                v = v + (first[t] - v) * torch.sigmoid(p["att.v0"] + nu @ p["att.v1"] @ p["att.v2"])
            d = torch.exp(-torch.exp(-F.softplus(-(p["att.w0"] + torch.tanh(d @ p["att.w1"]) @ p["att.w2"])) - 0.5))
            a = torch.sigmoid(p["att.a0"] + a @ p["att.a1"] @ p["att.a2"])
            g = torch.sigmoid(g @ p["att.g1"]) @ p["att.g2"]
            u, k = k * p["att.k_k"], k * (1 + (a - 1) * p["att.k_a"])
            out = []
            for h in range(H):
                at = slice(h * C // H, (h + 1) * C // H)
                unit = u[at] / u[at].norm()
                S[h] = S[h] * d[at] - S[h] @ torch.outer(unit, a[at] * unit) + torch.outer(v[at], k[at])
                y = F.layer_norm(S[h] @ r[at], (C // H,), p["att.ln_x.weight"][at], p["att.ln_x.bias"][at], 64e-5)
                out.append(y + (r[at] * k[at] * p["att.r_k"][h]).sum() * v[at])
            x[t] = residual + p["att.output.weight"] @ (torch.cat(out) * g)
            z = F.layer_norm(x[t], (C,), p["ln2.weight"], p["ln2.bias"])
            k = torch.relu(p["ffn.key.weight"] @ (z + (before_ffn - z) * p["ffn.x_k"])) ** 2
            before_ffn, x[t] = z, x[t] + p["ffn.value.weight"] @ k
    return (
        torch.stack([F.layer_norm(each, (C,), w["ln_out.weight"], w["ln_out.bias"]) for each in x]) @ w["head.weight"].T
    )


def test_rwkv7_in_and_out(tmp_path, capsys):
    theirs, file = random_rwkv7(), tmp_path / "theirs" / "RWKV-x070.pth"
    file.parent.mkdir()
    torch.save(theirs, file)
    assert main(["import", str(file.parent), str(tmp_path / "ours")]) == 0  # a folder of one file is that file
    assert "rwkv7: 69 tensors matched, 0 missing, 0 unexpected" in capsys.readouterr().out
    ours, tokens = lw.load(tmp_path / "ours"), torch.randint(V, (3, 11))
    lengths = torch.tensor([11, 4, 1])
    mine, _ = ours(tokens, None, lengths)
    for b, n in enumerate(lengths.tolist()):
        torch.testing.assert_close(mine[b, :n].double(), plain(theirs, tokens[b, :n]), rtol=0, atol=1e-5)
    with torch.no_grad():
        y, state = ours(tokens[:1, :5], ours.init_state(1))
        rest = [y] + [ours(tokens[:1, t : t + 1], state)[0] for t in range(5, 6)]
    torch.testing.assert_close(torch.cat(rest, 1), mine[:1, :6], rtol=0, atol=1e-5)

    weights.export(tmp_path / "ours", tmp_path / "back", "pth")
    back = torch.load(tmp_path / "back" / "model.pth", weights_only=True)
    assert back.keys() == theirs.keys() - {f"blocks.0.att.v{i}" for i in range(3)}  # which nothing reads
    for name, t in back.items():
        torch.testing.assert_close(t, theirs[name], rtol=0, atol=1e-7)
    assert weights.export(tmp_path / "ours", tmp_path / "hf").family == "longwave"  # a class of our own
    assert "logits were not compared" in str(weights.export(tmp_path / "ours", tmp_path / "again", "pth"))


def test_rwkv4_out_as_its_authors_write_it(tmp_path):
    theirs = twin("rwkv", tmp_path / "hf")
    assert weights.export(tmp_path / "hf", tmp_path / "pth", "pth").difference <= 1e-5
    names = torch.load(tmp_path / "pth" / "model.pth", weights_only=True)
    assert {
        "emb.weight",
        "blocks.0.ln0.bias",
        "blocks.1.att.time_mix_k",
        "blocks.0.ffn.key.weight",
        "head.weight",
    } <= set(names)
    tokens = torch.randint(40, (1, 9))
    again = lw.load(tmp_path / "pth")
    torch.testing.assert_close(again(tokens)[0], logits(theirs, tokens), rtol=0, atol=1e-5)


BAD = {
    "no marks": (lambda t: {"w": torch.ones(2)}, "no checkpoint of RWKV or Whisper"),
    "no embedding": (lambda t: {**t, "emb.weight": torch.ones(3)}, "lacks the matrix 'emb.weight'"),
    "no heads": (lambda t: {**t, "blocks.0.att.r_k": torch.ones(3)}, "lacks the matrix 'blocks.0.att.r_k'"),
    "heads of one": (lambda t: {**t, "blocks.0.att.r_k": torch.ones(C, 1)}, "a key of one channel has no direction"),
    "renamed": (lambda t: {k.replace("x_k", "x_q"): v for k, v in t.items()}, "lacks the tensor 'blocks.0.att.x_k'"),
    "NaN": (lambda t: {**t, "head.weight": torch.full((V, C), torch.nan)}, "'head.weight' holds NaN"),
    "empty": (lambda t: {**t, "blocks.0.att.w1": torch.ones(C, 0)}, "ranks"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_pth_are_told_apart(kind, tmp_path):
    change, words = BAD[kind]
    torch.save(change(random_rwkv7()), tmp_path / "model.pth")
    with pytest.raises(UserError, match=words):
        weights.bring(tmp_path / "model.pth", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["model.pth"]


def published(z):
    """The tensors of the authors' 39,564 numbers under the names of their language models, which have no place for
    a bias of the output: W (h + W^+ b) = W h + b.
    """
    found = {"emb.weight": z["e.weight"], "head.weight": z["o.weight"], "ln_out.weight": z["lno.weight"],
             "ln_out.bias": z["lno.bias"] + np.linalg.pinv(z["o.weight"]) @ z["o.bias"],
             "blocks.0.ln0.weight": np.ones(32), "blocks.0.ln0.bias": np.zeros(32)}  # fmt: skip
    for i, block in enumerate(("1", "2")):
        parts = {f"ln{block}a": "ln1", f"ln{block}b": "ln2", f"rwkv{block}": "att", f"ffn{block}": "ffn"}
        for name in z.files:
            part, _, rest = name.partition(".")
            if part in parts:
                found[f"blocks.{i}.{parts[part]}.{rest}"] = z[name]
    return {name: torch.from_numpy(np.asarray(t, np.float32)) for name, t in found.items()}


def test_a_published_rwkv7_reverses_numbers(shared_data, tmp_path):
    z = np.load(shared_data / "models" / "rwkv_260123_reverse_L2_only_rwkv7.npz")
    torch.save(published(z), tmp_path / "model.pth")
    model = lw.load(tmp_path / "model.pth").eval()
    model.embed_norm = make_norm("none", 32)  # this one of theirs has none,
    for i, block in enumerate(model.backbone.parts()):  # and adds a constant to each block
        block.parts()[0].mixer.out.bias = torch.nn.Parameter(torch.from_numpy(z[f"rosa{i + 1}.o.bias"]))
    draw = random.Random(0)
    digits = [[draw.randrange(10) for _ in range(n)] for n in range(1, 61)]
    lengths = torch.tensor([2 * len(each) + 1 for each in digits])
    tokens = torch.zeros(60, 121, dtype=torch.long)
    for row, each in zip(tokens, digits, strict=True):
        row[: 2 * len(each) + 1] = torch.tensor([*each, 10, *each[::-1]])
    with torch.no_grad():
        guess = model(tokens, None, lengths)[0].argmax(-1)
    right = sum(int(g == d) for row, each in zip(guess, digits, strict=True)
                for g, d in zip(row[len(each) :].tolist(), each[::-1], strict=False))  # fmt: skip
    assert right >= 0.998 * sum(map(len, digits))


@pytest.fixture(scope="module")
def small_world(tmp_path_factory):
    """A line a word, as published: every byte, then words that begin alike."""
    words = [bytes([i]) for i in range(256)] + [
        w.encode() for w in ("th", "the", "there", "he", "ère", "  ", " t", "🐈")
    ]
    file = tmp_path_factory.mktemp("world") / "rwkv_vocab_v20230424.txt"

    def literal(word):
        try:
            return repr(word.decode())
        except UnicodeDecodeError:
            return repr(word)

    file.write_text("".join(f"{i} {literal(w)} {len(w)}\n" for i, w in enumerate(words, start=1)), encoding="utf-8")
    return file


def longest_match(words, data):
    found = []
    while data:
        best = max((w for w in words if w and data.startswith(w)), key=len)
        found.append(words.index(best))
        data = data[len(best) :]
    return found


def test_world_tokens(small_world, tmp_path):
    tokens = tokens_of(small_world.parent)
    assert isinstance(tokens, World)
    assert tokens.encode("thertherthere") == [258, 115, 258, 115, 259]  # the, r, the, r, there
    draw = random.Random(0)
    texts = [
        "".join(draw.choice(["t", "h", "e", "r", " ", "è", "🐈", "\n", "x"]) for _ in range(30)) for _ in range(50)
    ]
    for text in texts:
        assert tokens.encode(text) == longest_match(tokens._words, text.encode())
    for _ in range(200):
        raw = draw.randbytes(20)
        ids = tokens.encode(raw.decode("utf-8", errors="surrogateescape"))
        assert b"".join(tokens._words[i] for i in ids) == raw
        stream = tokens.decoder()
        assert "".join(map(stream.add, ids)) + stream.finish() == raw.decode("utf-8", errors="replace")
    assert tokens.prompt("the") == [0, 258]
    assert tokens.decode([0, 258, 99999]) == "the"


def test_the_published_world(shared_data, tmp_path):
    raw = gzip.decompress((shared_data / "tokenizers" / "rwkv_vocab_v20230424.txt.gz").read_bytes())
    (tmp_path / "rwkv_vocab_v20230424.txt").write_bytes(raw)
    tokens = tokens_of(tmp_path)
    assert tokens.size == 65530
    text = "The Eiffel tower is in the city of 巴黎, naïve 🐈\n\n\t\tdef f(x):" + 9 * "*"
    assert tokens.encode(text) == longest_match(tokens._words, text.encode())
    assert tokens.decode(tokens.encode(text)) == text


@pytest.mark.parametrize(("change", "words"), [
    (lambda s: s.replace("258 'the' 3", "258 'the' 4"), "line 258 is not a number"),
    (lambda s: s.replace("258 'the' 3", "258 __import__('os') 3"), "line 258 is not a number"),
    (lambda s: s.replace("258 'the' 3", "-1 'the' 3"), "line 258 is not a number"),
    (lambda s: s.replace("258 'the' 3", "257 'the' 3"), "the same number"),
    (lambda s: s.replace("258 'the' 3", "258 'th' 2"), "line 258 has a word that stands above"),
    (lambda s: s[10:], "line 1 is not|lacks a word for the byte 0"),
    (lambda s: s.replace("258 'the' 3", "99999 'the' 3"), "do not belong together"),
])  # fmt: skip
def test_bad_worlds_are_told_apart(change, words, small_world, tmp_path):
    torch.save({**random_rwkv7(), "emb.weight": torch.ones(300, C), "head.weight": torch.ones(300, C)},
               tmp_path / "model.pth")  # fmt: skip
    (tmp_path / small_world.name).write_text(change(small_world.read_text(encoding="utf-8")), encoding="utf-8")
    with pytest.raises(UserError, match=words):
        weights.bring(tmp_path / "model.pth", tmp_path / "out")
    assert not (tmp_path / "out").exists()
