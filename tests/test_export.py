"""Models as graphs: torch.export and ONNX answer as the model does, piece by piece, ragged rows and any batch."""

import jaxtyping
import onnxruntime
import pytest
import safetensors.numpy
import torch

import longwave as lw
from longwave.errors import UserError
from longwave.models import weights
from longwave.tolerance import TOLERANCE, apart
from test_models import TINY, tiny


@pytest.fixture(autouse=True)
def _sizes_stay_symbols():
    """The checker of shapes asks how large the batch is, which ties a graph to one size."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


ONE_LAYER = {
    "attention": lambda: tiny("gpt2", n_layers=1, vocab=256),
    "mamba": lambda: tiny("mamba", n_layers=1, vocab=256),
    "rwkv": lambda: tiny("rwkv7", n_layers=1, vocab=256),
    "lstm": lambda: tiny("lstm", n_layers=1),
    "gated deltanet": lambda: tiny("lm", n_layers=1, mixer="gated_deltanet"),
    "hyena": lambda: tiny("lm", n_layers=1, mixer="hyena"),
    "hybrid": lambda: tiny("lm", n_layers=2, mixer=(lw.Spec("attention", window=3), "gla")),
}


@pytest.mark.parametrize("name", ONE_LAYER)
def test_an_onnx_file_continues_as_the_model_does(name, tmp_path):
    model = ONE_LAYER[name]()
    with torch.no_grad():
        model.embed.weight.mul_(30)
    lw.save(model, tmp_path / "run")
    report = weights.export(tmp_path / "run", tmp_path / "out", "onnx", capacity=24)
    assert report.difference < TOLERANCE[torch.float32] and "onnxruntime" in str(report)
    session = onnxruntime.InferenceSession(str(tmp_path / "out" / "model.onnx"), providers=["CPUExecutionProvider"])
    first = safetensors.numpy.load_file(tmp_path / "out" / "state.safetensors")
    state = {key: value.repeat(3, axis=0) for key, value in first.items()}
    prompts = [[5, 9, 30, 2, 7], [11], [3, 3, 8]]
    lengths = torch.tensor([len(prompt) for prompt in prompts])
    tokens = torch.tensor([prompt + [0] * (5 - len(prompt)) for prompt in prompts])
    said = []
    for _ in range(6):
        names = ["logits", *(key.replace("state.", "next.", 1) for key in state)]
        logits, *after = session.run(names, {"tokens": tokens.numpy(), "lengths": lengths.numpy(), **state})
        state = dict(zip(state, after, strict=True))
        tokens = torch.from_numpy(logits)[torch.arange(3), lengths - 1].argmax(-1, keepdim=True)
        lengths = torch.ones(3, dtype=torch.long)
        said.append(tokens)
    assert torch.cat(said, 1).tolist() == lw.generate(model, prompts, max_tokens=6, temperature=0)


@pytest.mark.parametrize("name", ["gpt3", "deepseek", "mamba2"])
def test_an_exported_program_answers_as_the_model_does(name):
    model = tiny(name, n_layers=2)
    program = lw.export_program(model, tokens=3, capacity=12).module(check_guards=False)
    tokens, lengths = torch.randint(40, (3, 9)), torch.tensor([9, 4, 0])
    state = model.init_state(3, capacity=12)
    leaves, pieces = state.leaves(), []
    with torch.no_grad():
        for start in range(0, 9, 3):
            logits, *leaves = program(tokens[:, start : start + 3], (lengths - start).clamp(0, 3), *leaves)
            pieces.append(logits)
        whole, _ = model(tokens)
    got = torch.cat(pieces, 1)
    assert apart(got[0], whole[0]) < TOLERANCE[torch.float32]
    assert apart(got[1, :4], whole[1, :4]) < TOLERANCE[torch.float32]
    assert torch.equal(leaves[0][2], state.leaves()[0][2])  # a row of length 0 keeps its state


def test_what_has_no_graph_says_so(tmp_path):
    with pytest.raises(UserError, match=r"made of FFN, Reformer"):
        lw.export_program(tiny("lm", n_layers=1, mixer="reformer"))
    with pytest.raises(UserError, match="for causal language models"):
        lw.export_program(lw.create_model("masked_lm", **TINY["masked_lm"]))


@pytest.mark.parametrize("mixer", ["hyena", "long_conv", "ckconv", "attentive"])
def test_a_state_of_fixed_capacity_answers_alike(mixer):
    model = tiny("lm", n_layers=1, mixer=mixer).double()
    tokens = torch.randint(40, (2, 10))
    whole, _ = model(tokens)
    state, pieces = model.init_state(2, capacity=10), []
    sizes = [t.shape for t in state.leaves()]
    with torch.no_grad():
        for piece in tokens.split([1, 4, 1, 4], 1):
            y, state = model(piece, state)
            pieces.append(y)
    assert apart(torch.cat(pieces, 1), whole) < TOLERANCE[torch.float64]
    assert [t.shape for t in state.leaves()] == sizes
