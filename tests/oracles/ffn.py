"""The feed-forward layers of transformers' Llama (swiglu) and GPT-2 (gelu by its definition); formulas for the rest."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from transformers import GPT2Config, LlamaConfig
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP
from transformers.models.llama.modeling_llama import LlamaMLP

from longwave import mixers
from oracles import gradients

FORMULAS = {
    "geglu": lambda a, b: b * a * (1 + torch.erf(a / 2**0.5)) / 2,
    "reglu": lambda a, b: b * torch.where(a > 0, a, 0),
    "glu": lambda a, b: b / (1 + torch.exp(-a)),
    "relu": lambda a: torch.where(a > 0, a, 0),
    "silu": lambda a: a / (1 + torch.exp(-a)),
    "relu2": lambda a: torch.where(a > 0, a * a, 0),
}


def pairs() -> Iterator[tuple[str, Tensor, Tensor]]:
    x = torch.randn(2, 5, 8, dtype=torch.float64, requires_grad=True)

    ours = mixers.create("ffn", 8, d_hidden=12).double()
    llama = LlamaMLP(LlamaConfig(hidden_size=8, intermediate_size=12, num_attention_heads=2)).double()
    llama.gate_proj.weight, llama.up_proj.weight = (nn.Parameter(w) for w in ours.project.weight.chunk(2))
    llama.down_proj.weight = ours.out.weight
    y, wanted = ours(x)[0], llama(x)
    yield "swiglu", y, wanted
    yield from gradients(
        y, wanted, {"x": (x, x), "the swiglu's last weight": (ours.out.weight, llama.down_proj.weight)}
    )

    ours = mixers.create("ffn", 8, kind="gelu", bias=True).double()
    gpt = GPT2MLP(32, GPT2Config(n_embd=8, activation_function="gelu", resid_pdrop=0.0)).double()
    gpt.c_fc.weight, gpt.c_fc.bias = nn.Parameter(ours.project.weight.T), ours.project.bias
    gpt.c_proj.weight, gpt.c_proj.bias = nn.Parameter(ours.out.weight.T), ours.out.bias
    y, wanted = ours(x)[0], gpt(x)
    yield "gelu", y, wanted
    yield from gradients(y, wanted, {"x, gelu": (x, x), "the gelu's first bias": (ours.project.bias, gpt.c_fc.bias)})

    for kind, formula in FORMULAS.items():
        ours = mixers.create("ffn", 8, kind=kind).double()
        h = x @ ours.project.weight.T
        wanted = formula(*h.split(ours.out.in_features, -1)) @ ours.out.weight.T
        yield kind, ours(x)[0], wanted
        yield from gradients(ours(x)[0], wanted, {f"x, {kind}": (x, x)})
