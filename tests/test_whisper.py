"""Whisper: the features, the weights and the search of transformers' class; sound files as people have them."""

import json
import re
import wave

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers.models.whisper.configuration_whisper import NON_SPEECH_TOKENS

import longwave as lw
from longwave.cli import main
from longwave.data.audio import log_mel, read_wav, resample
from longwave.data.tokens import tokens_of
from longwave.errors import UserError
from longwave.generate.beam import beam_search
from longwave.generate.transcribe import Begin, transcribe, windows
from longwave.models import weights
from longwave.models.weights import whisper_tokenizer
from longwave.models.weights.families import whisper as family
from longwave.models.weights.hub import fetch
from longwave.models.weights.names import piece

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

CLOSE = 1e-5
VOCAB, FRAMES = 40, 24
START, END, NO_TIMES = 31, 30, 33


def tone(seconds, rate=16000, pitch=440.0):
    t = np.arange(int(seconds * rate)) / rate
    return (0.5 * np.sin(2 * np.pi * pitch * t) * np.hanning(len(t))).astype(np.float32)


def write_wav(file, sound, rate=16000, channels=1, width=2):
    with wave.open(str(file), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes((sound * 32767).astype("<i2").tobytes() if width == 2 else bytes(len(sound) * width))


def whisper(folder):
    """A random Whisper of transformers, and ours of its weights."""
    torch.manual_seed(0)
    sizes = dict(encoder_layers=2, decoder_layers=1, encoder_ffn_dim=16, decoder_ffn_dim=16, encoder_attention_heads=2,
                 decoder_attention_heads=2, max_source_positions=FRAMES // 2, max_target_positions=32)  # fmt: skip
    config = transformers.WhisperConfig(
        vocab_size=VOCAB, d_model=8, num_mel_bins=6, pad_token_id=END, bos_token_id=END, eos_token_id=END,
        decoder_start_token_id=START, begin_suppress_tokens=None, init_std=0.4, **sizes,
    )  # fmt: skip
    theirs = transformers.WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.2 * torch.randn_like(p))
    theirs.save_pretrained(folder)
    return theirs, lw.load(folder).eval()


def test_the_features_are_those_of_transformers():
    theirs = transformers.WhisperFeatureExtractor()
    noise = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    for sound in (tone(2.0) + 0.01 * np.resize(noise, 32000), np.zeros(5000, np.float32), noise):
        wanted = theirs(sound, sampling_rate=16000, return_tensors="np")["input_features"][0].T
        got = log_mel(np.pad(sound, (0, 480000 - len(sound))))
        assert got.shape == wanted.shape == (3000, 80)
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-4)


def test_in_and_out(tmp_path):
    theirs, _ = whisper(tmp_path / "theirs")
    assert weights.bring(tmp_path / "theirs", tmp_path / "ours").difference <= CLOSE
    ours = lw.load(tmp_path / "ours").eval()
    frames, target = torch.randn(3, FRAMES, 6), torch.randint(VOCAB, (3, 5))
    wanted = theirs(input_features=frames.mT, decoder_input_ids=target).logits
    whole, _ = ours(target, ours.init_state(frames))
    state, pieces = ours.init_state(frames), []
    for piece_ in target.split([2, 1, 1, 1], 1):  # a beginning, then token by token
        y, state = ours(piece_, state)
        pieces.append(y)
    for mine in (whole, torch.cat(pieces, 1)):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=CLOSE)

    weight = torch.randn_like(wanted)
    (wanted * weight).sum().backward()
    (whole * weight).sum().backward()
    right = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    for name, p in ours.named_parameters():
        for their_name, grad in piece(family.names(ours)[name]).write(p.grad):
            torch.testing.assert_close(grad, right.pop(their_name), rtol=1e-4, atol=1e-4)
    assert not right

    assert weights.export(tmp_path / "ours", tmp_path / "back").difference <= CLOSE
    again = transformers.WhisperForConditionalGeneration.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(
        again(input_features=frames.mT, decoder_input_ids=target).logits, wanted, rtol=0, atol=CLOSE
    )


def test_the_layout_of_its_authors(tmp_path):
    _, ours = whisper(tmp_path / "theirs")
    names = {"embed_tokens.weight": "token_embedding.weight", "embed_positions.weight": "positional_embedding",
             ".layers.": ".blocks.", "self_attn.": "attn.", "encoder_attn.": "cross_attn.", "q_proj": "query",
             "self_attn_layer_norm": "attn_ln", "encoder_attn_layer_norm": "cross_attn_ln", "k_proj": "key",
             "v_proj": "value", "out_proj": "out", "fc1": "mlp.0", "fc2": "mlp.2", "final_layer_norm": "mlp_ln",
             "model.encoder.layer_norm": "model.encoder.ln_post", "model.decoder.layer_norm": "model.decoder.ln",
             "model.": ""}  # fmt: skip
    tensors = {}
    for name, t in weights.convert.published(ours)[1].items():
        for theirs, authors in names.items():
            name = name.replace(theirs, authors)
        tensors[name] = t.half()
    dims = dict(n_mels=6, n_vocab=VOCAB, n_audio_ctx=FRAMES // 2, n_audio_state=8, n_audio_head=2, n_audio_layer=2,
                n_text_ctx=32, n_text_state=8, n_text_head=2, n_text_layer=1)  # fmt: skip
    torch.save({"dims": dims, "model_state_dict": tensors}, tmp_path / "tiny.pt")
    assert "positional_embedding" in " ".join(tensors)
    assert lw.load(tmp_path / "tiny.pt").spec == ours.spec
    assert weights.bring(tmp_path / "tiny.pt", tmp_path / "mine").difference <= CLOSE
    del dims["n_text_head"]
    torch.save({"dims": dims, "model_state_dict": tensors}, tmp_path / "lacking.pt")
    with pytest.raises(UserError, match="does not say 'n_text_head' among its dims"):
        lw.load(tmp_path / "lacking.pt")


def test_padding_is_inert(tmp_path):
    _, ours = whisper(tmp_path)
    ours = ours.double()
    frames, lengths = torch.randn(3, FRAMES, 6).double(), torch.tensor([FRAMES, 7, 1])
    target = torch.randint(VOCAB, (3, 4))
    padded = frames.clone()
    for b, n in enumerate(lengths):
        padded[b, n:] = torch.nan
    mine, _ = ours(target, ours.init_state(padded, lengths))
    for b, n in enumerate(lengths):
        alone, _ = ours(target[b : b + 1], ours.init_state(frames[b : b + 1, :n]))
        torch.testing.assert_close(mine[b : b + 1], alone, rtol=0, atol=1e-12)
    assert ours.loss(padded, target, lengths).isfinite()
    with pytest.raises(UserError, match="hears 1 to 24 frames of 6 features, got 25 of 6"):
        ours.init_state(torch.zeros(1, FRAMES + 1, 6).double())


def test_another_rate_is_the_same_sound(tmp_path):
    for rate in (8000, 22050, 44100):
        got = resample(tone(0.5, rate), rate, 16000)
        assert got.shape == (8000,)
        np.testing.assert_allclose(got, tone(0.5), atol=2e-3)
    write_wav(tmp_path / "two.wav", np.stack([tone(0.1), 0 * tone(0.1)], 1).ravel(), channels=2)
    sound, rate = read_wav(tmp_path / "two.wav")  # the mean of both channels
    assert rate == 16000
    np.testing.assert_allclose(sound / 32768, tone(0.1) / 2, atol=1e-4)


def run(folder):
    """A random Whisper of windows of 0.24 s and words w0, w1 ..., and transformers' with the same rules."""
    theirs, _ = whisper(folder / "theirs")
    weights.bring(folder / "theirs", folder / "run")
    words = {f"w{i}": i for i in range(VOCAB)}
    pieces = Tokenizer(models.WordLevel(words, unk_token="w0"))
    (folder / "run" / "tokenizer.json").write_text(pieces.to_str())
    rules = dict(eos_token_id=END, decoder_start_token_id=START, suppress_tokens=[3, 4, 17], max_length=32,
                 begin_suppress_tokens=[5, END])  # fmt: skip
    (folder / "run" / "generation_config.json").write_text(json.dumps({**rules, "no_timestamps_token_id": NO_TIMES}))
    theirs.generation_config = transformers.GenerationConfig(**rules, pad_token_id=END, bos_token_id=END)
    return folder / "run", theirs


def test_what_is_said_and_barred_is_that_of_transformers(tmp_path):
    folder, theirs = run(tmp_path)
    ours, frames = lw.load(folder).eval(), torch.randn(3, FRAMES, 6)
    for beams in (1, 3):
        wanted = theirs.generate(frames.mT, num_beams=beams, do_sample=False, max_new_tokens=8).tolist()
        got = beam_search(ours, torch.full((3, 1), START), ours.init_state(frames), end=END, beams=beams, max_tokens=8,
                          never=[3, 4, 17], not_first=[5, END], hasty=True)  # fmt: skip
        for row, right in zip(got, wanted, strict=True):
            said = [token for token in row[0].tokens if token != END]
            assert len(said) and said == [token for token in right if token not in (START, END)]
            assert not set(said) & {3, 4, 17} and said[0] != 5


def test_a_window_ends_where_it_is_quiet():
    sound = np.ones(1000, np.float32)
    sound[260:290] = sound[480:500] = 0
    cuts = [len(piece_) for piece_ in windows(sound, 100, 300)]
    assert sum(cuts) == 1000 and max(cuts) <= 300
    assert 265 <= cuts[0] <= 285 and 480 <= sum(cuts[:2]) <= 500
    assert [len(piece_) for piece_ in windows(sound[:300], 100, 300)] == [300]


def test_the_command_hears_what_people_give_it(tmp_path, capsys):
    folder, _ = run(tmp_path)
    longest = FRAMES / 100  # seconds of a window

    def lines(name, *how, code=0):
        capsys.readouterr()
        assert main(["transcribe", str(folder), str(tmp_path / name), *how]) == code
        found = capsys.readouterr()
        return found.err if code else found.out.splitlines()

    write_wav(tmp_path / "mono.wav", tone(longest))
    write_wav(tmp_path / "stereo.wav", np.repeat(tone(longest), 2), channels=2)
    said = lines("mono.wav")
    assert len(said) == 1 and said == lines("stereo.wav") and said[0]
    assert len(lines("mono.wav", "--beams", "3", "--max-tokens", "2")[0].split()) <= 2
    write_wav(tmp_path / "long.wav", tone(3 * longest, 8000), rate=8000)
    assert len(lines("long.wav")) >= 3
    write_wav(tmp_path / "silent.wav", np.zeros(9000))
    assert lines("silent.wav") == []
    write_wav(tmp_path / "empty.wav", np.zeros(0))
    assert "is empty: it holds no sound" in lines("empty.wav", code=2)
    write_wav(tmp_path / "bytes.wav", np.zeros(9), width=1)
    assert "samples of 1 bytes" in lines("bytes.wav", code=2)
    write_wav(tmp_path / "slow.wav", tone(1), rate=1)
    assert "sound of 1 samples a second holds no speech" in lines("slow.wav", code=2)
    (tmp_path / "text.wav").write_text("not a sound at all")
    (tmp_path / "nothing.wav").write_bytes(b"")
    (tmp_path / "cut.wav").write_bytes((tmp_path / "mono.wav").read_bytes()[:-1001])
    for name in ("text.wav", "nothing.wav"):
        assert "is not a wav of 16-bit samples" in lines(name, code=2)
    assert len(lines("cut.wav")) == 1
    assert "there is no file" in lines("absent.wav", code=2)
    assert "knows English only" in lines("mono.wav", "--language", "de", code=2)
    (folder / "generation_config.json").write_text(json.dumps(dict(eos_token_id=END, decoder_start_token_id=999)))
    assert "names tokens that the model, of 40, does not know" in lines("mono.wav", code=2)


def test_the_words_of_the_authors_become_a_tokenizer(tmp_path, monkeypatch):
    words = [*(bytes([b]) for b in range(256)), *(bytes([a, b]) for a in range(196) for b in range(256))]
    ranks = {word: i for i, word in enumerate(words[:50256])}
    monkeypatch.setattr(whisper_tokenizer, "_ranks", lambda name: ranks)
    whisper_tokenizer.write_tokenizer(whisper_tokenizer.ENGLISH, tmp_path)
    tokens = tokens_of(tmp_path)
    assert tokens.size == whisper_tokenizer.ENGLISH
    assert tokens.encode("abcda é") == [ranks[b"ab"], ranks[b"cd"], ranks[b"a"], ranks[b" \xc3"], 0xA9]
    assert tokens.decode([50257, ranks[b"ab"], 50362, ranks[b"c"], 50256]) == "abc"
    assert (tokens.start, tokens.ends) == (50257, {50256})
    rules = json.loads((tmp_path / "generation_config.json").read_text())
    assert rules["begin_suppress_tokens"] == [32, 50256]
    barred = set(rules["suppress_tokens"])
    assert {ranks[b" -"], ranks[b"<<"], 50257, 50361} <= barred and ranks[b"ab"] not in barred


def test_real_speech(shared_data, tmp_path):
    """Five digits of one speaker, by the published weights."""
    try:
        source = fetch("whisper")
        model = lw.load(source)
    except UserError as missing:
        pytest.skip(str(missing))
    rules = json.loads((model.home / "generation_config.json").read_text())
    assert rules["suppress_tokens"] == NON_SPEECH_TOKENS
    with np.load(shared_data / "fsdd.npz") as held:
        audio, at, label, speaker = (held[name] for name in ("audio", "offset", "label", "speaker"))
    random = np.random.default_rng(0)
    some = [random.choice(np.flatnonzero((label == digit) & (speaker == 0))) for digit in (1, 2, 3, 4, 5)]
    sound = np.concatenate([np.pad(audio[at[i] : at[i + 1]], (0, 2000)) for i in some])
    (said,) = transcribe(model, (sound / 32768).astype(np.float32), 8000)
    assert re.sub(r"[^\w ]", "", said).lower() in ("1 2 3 4 5", "one two three four five")


def test_the_language_is_found_out_as_transformers_does(tmp_path):
    folder, theirs = run(tmp_path)
    ours, tokens = lw.load(folder).eval(), tokens_of(folder)
    rules = dict(lang_to_id={"<|en|>": 34, "<|de|>": 35, "<|haw|>": 36}, no_timestamps_token_id=NO_TIMES,
                 task_to_id=dict(transcribe=37, translate=38))  # fmt: skip
    theirs.generation_config.lang_to_id = rules["lang_to_id"]
    heard = 3 * torch.randn(6, FRAMES, 6)
    wanted = theirs.detect_language(heard.mT).tolist()
    begins = [Begin(rules, tokens, None, False).tokens(ours, ours.init_state(each[None])) for each in heard]
    assert begins == [[START, language, 37, NO_TIMES] for language in wanted]
    assert Begin(rules, tokens, "haw", True).tokens(ours, None) == [START, 36, 38, NO_TIMES]
    with pytest.raises(UserError, match=r"unknown language 'hav'.*haw"):
        Begin(rules, tokens, "hav", False)
