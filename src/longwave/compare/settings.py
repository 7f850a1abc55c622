"""How each model of a table is set up, and each column: as published, and as a twin of it for a laptop.

A setting says where it is from. `full` is the paper's where it is known to us; where it is not, sizes are ours, and the
row says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from longwave.spec import Spec

Sizes = Mapping[str, Any]  # d_model, n_layers, d_hidden, n_heads, dropout; and of the plan, batch, lr, steps ...

OF_PLAN = ("batch", "accumulate", "context", "lr", "schedule", "warmup", "floor", "decay", "steps", "minutes", "betas",
           "smoothing", "clip")  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A model: a mixer between an embedding and a head, or a preset of its own."""

    mixer: Spec | None = None
    preset: str = ""
    options: Sizes = field(default_factory=dict)  # of the preset, beyond the widths
    ffn: str | None = "gelu"  # beside the mixer
    positions: bool = False  # sinusoids are added to the input
    both: bool = False  # read both ways
    heads: bool = False  # the mixer has n_heads
    setting: str = "ours"  # the family of sizes in SIZES
    note: str = ""  # how it differs from the published model


@dataclass(frozen=True)
class Column:
    task: str
    full: Sizes  # options of the task, beside --data
    laptop: Sizes
    data: str  # what --data must be for the full setting
    metric: str = ""  # among what the task measures; "": what it ranks by
    twin: Sizes = field(default_factory=dict)  # of the laptop's plan


ATTENTION = Row(Spec("attention", causal=False, position="none"), positions=True, heads=True, setting="lra")
S4 = Row(Spec("s4"), ffn=None, both=True, setting="s4", note="layer norm where the paper has batch norm")


def cell(name: str, **options: Any) -> Row:
    """A recurrence that reads forwards, layer upon layer."""
    return Row(Spec(name, **options), ffn=None, note="sizes are ours")


LRA = {
    "Transformer": ATTENTION,
    "Reformer": Row(Spec("reformer", causal=False), positions=True, heads=True, setting="lra"),
    "BigBird": Row(Spec("bigbird"), positions=True, heads=True, setting="lra"),
    "Linear Trans.": Row(
        Spec("linear_attention"), positions=True, heads=True, both=True, setting="lra",
        note="both directions are summed, where the paper's layer sees the whole sequence at once",
    ),
    "Performer": Row(Spec("performer", causal=False), positions=True, heads=True, setting="lra"),
    "FNet": Row(Spec("fnet"), positions=True, setting="lra"),
    "Nyströmformer": Row(Spec("nystromformer"), positions=True, heads=True, setting="lra"),
    "Luna-256": Row(Spec("luna", packed=256, causal=False), positions=True, heads=True, setting="lra"),
    "S4": S4,
}  # fmt: skip

SPEECH = {
    "Transformer": ATTENTION,
    "Performer": LRA["Performer"],
    "ODE-RNN": cell("ode_rnn"),
    "NRDE": cell("nrde"),
    "ExpRNN": cell("exprnn"),
    "LipschitzRNN": cell("lipschitz_rnn"),
    "CKConv": Row(Spec("ckconv"), ffn="gelu", note="sizes are ours"),
    "WaveGAN-D": Row(preset="wavegan", note="sizes are those of Donahue et al. 2019"),
    "LSSL": Row(Spec("lssl"), ffn=None, note="sizes are ours"),
    "S4": S4,
}

PIXELS = {
    "Transformer": ATTENTION,
    "LSTM": cell("lstm"),
    "r-LSTM": cell("rlstm"),
    "UR-LSTM": cell("urlstm"),
    "UR-GRU": cell("urgru"),
    "HiPPO-RNN": cell("hippo_rnn"),
    "LMU-FFT": cell("lmu"),
    "LipschitzRNN": cell("lipschitz_rnn"),
    "TCN": Row(Spec("tcn", levels=8, taps=7), ffn=None, setting="one", note="width of Bai et al. 2018, Table 2"),
    "TrellisNet": Row(Spec("trellisnet", depth=16), ffn=None, setting="one", note="sizes are ours"),
    "CKConv": SPEECH["CKConv"],
    "LSSL": SPEECH["LSSL"],
    "S4": S4,
}

TRANSLATION = {
    "ByteNet": Row(preset="bytenet"),
    "Deep-Att + PosUnk": Row(preset="deep_att", note="byte pairs in place of PosUnk's copied words"),
    "GNMT + RL": Row(preset="gnmt", note="trained by likelihood alone, without the reward of BLEU"),
    "ConvS2S": Row(preset="convs2s"),
    "MoE": Row(preset="lstm_moe"),
    "Transformer (base)": Row(preset="transformer"),
    "Transformer (big)": Row(preset="transformer_big"),
}

SCRATCH = "from scratch: no weights of it are at hand"
BERT = Row(Spec("attention", causal=False, position="none"), positions=True, heads=True, setting="base", note=SCRATCH)
GLUE = {
    "BiLSTM+ELMo+Attn": Row(preset="elmo_classifier", options={"words": False}, note=f"{SCRATCH}; it reads bytes"),
    "OpenAI GPT": Row(Spec("attention", position="none"), positions=True, heads=True, setting="base", note=SCRATCH),
    "BERT BASE": BERT,
    "BERT LARGE": replace(BERT, setting="large"),
}

ROWS = {"lra": LRA, "speech": SPEECH, "pixels": PIXELS, "translation": TRANSLATION, "glue": GLUE}

OURS: Sizes = dict(d_model=256, n_layers=2, n_heads=4, d_hidden=1024, dropout=0.1, batch=50, steps=100000, lr=1e-3)
FINE: Sizes = dict(dropout=0.1, batch=32, steps=10000, lr=2e-5, schedule="linear", warmup=1000, floor=0.0)  # tuning

# Sizes and plans of the full settings, by family and column ("": any other). The Transformers of the Long Range Arena:
# configurations in the repository of Tay et al. 2021, where text's rates are 0.05 min(1, step / warmup) /
# sqrt(max(step, warmup)). S4: Gu, Goel and Re 2022, Table 11, with epochs turned into steps.
FULL: dict[str, dict[str, Sizes]] = {
    "lra": {
        "ListOps": dict(d_model=512, n_layers=6, n_heads=8, d_hidden=2048, batch=32, context=2000, steps=5000,
                        lr=1.58e-3, schedule="noam", warmup=1000, decay=0.1),
        "Text": dict(d_model=256, n_layers=4, n_heads=4, d_hidden=1024, batch=32, context=4000, steps=20000,
                     lr=5.6e-4, schedule="noam", warmup=8000, decay=0.1),
        "Retrieval": dict(d_model=128, n_layers=4, n_heads=4, d_hidden=512, batch=32, context=4000, steps=5000,
                          lr=5.6e-4, schedule="noam", warmup=8000, decay=0.1),
        "Image": dict(d_model=32, n_layers=1, n_heads=1, d_hidden=64, dropout=0.3, batch=256, context=1024,
                      steps=35000, lr=5e-4, warmup=175, floor=0.0, decay=0.0),
        "Pathfinder": dict(d_model=128, n_layers=1, n_heads=4, d_hidden=128, dropout=0.2, batch=512, context=1024,
                           steps=62400, lr=1e-3, warmup=312, floor=0.0, decay=0.0),
        "Path-X": dict(d_model=128, n_layers=1, n_heads=4, d_hidden=128, dropout=0.2, batch=512, context=16384,
                       steps=62400, lr=1e-3, warmup=312, floor=0.0, decay=0.0),
    },
    "s4": {
        "ListOps": dict(d_model=128, n_layers=6, batch=100, context=2000, steps=48000, lr=1e-2, decay=0.01),
        "Text": dict(d_model=64, n_layers=4, batch=50, context=4000, steps=10000, lr=1e-3, decay=0.0),
        "Retrieval": dict(d_model=256, n_layers=6, batch=64, context=4000, steps=46000, lr=2e-3, decay=0.0),
        "Image": dict(d_model=512, n_layers=6, dropout=0.2, batch=50, context=1024, steps=180000, lr=4e-3, decay=0.01),
        "Pathfinder": dict(d_model=256, n_layers=6, dropout=0.1, batch=100, context=1024, steps=320000, lr=4e-3,
                           decay=0.0),
        "Path-X": dict(d_model=256, n_layers=6, batch=32, context=16384, steps=500000, lr=5e-4, decay=0.0),
        "MFCC": dict(d_model=256, n_layers=4, dropout=0.2, batch=100, steps=12000, lr=1e-2, decay=0.0),
        "RAW": dict(d_model=128, n_layers=6, dropout=0.1, batch=20, steps=180000, lr=1e-2, decay=0.0),
        "sCIFAR": dict(d_model=1024, n_layers=6, dropout=0.25, batch=50, steps=180000, lr=1e-2, decay=0.01),
    },
    "one": {"": dict(d_model=25, n_layers=1, dropout=0.05, batch=64, steps=20000, lr=2e-3)},
    "base": {"": dict(d_model=768, n_layers=12, n_heads=12, d_hidden=3072, **FINE)},
    "large": {"": dict(d_model=1024, n_layers=24, n_heads=16, d_hidden=4096, **FINE)},
    "ours": {"": OURS},
}  # fmt: skip

# The twins: small enough for minutes on two cores, the same for everybody.
LAPTOP: Sizes = dict(d_model=64, n_layers=2, n_heads=4, d_hidden=128, width=16, d_elmo=32, d_cell=64, n_experts=8,
                     batch=32, minutes=1.0, lr=2e-3, schedule="cosine", warmup=20, decay=0.01)  # fmt: skip


def sizes(row: Row, column: str, budget: str) -> dict[str, Any]:
    """Widths and plan of a cell."""
    if budget == "laptop":
        found = dict(LAPTOP)
    elif row.preset:
        return {}  # a preset's own are the published ones
    else:
        known = FULL[row.setting]
        found = dict(known.get("RAW" if column == "0.5x" else column) or known.get("") or OURS)
    return {**found, "n_layers": 1} if row.setting == "one" else found


MADE = "made here"
NEWSTEST = "a folder of train.en, train.{0}, val.* and test_newstest2014.*: WMT 2014 from statmt.org/wmt14"
COLUMNS: dict[str, dict[str, Column]] = {
    "lra": {
        "ListOps": Column("listops", {}, dict(examples=9600, shortest=10, longest=128, depth=6, arguments=5), MADE,
                          twin={"context": 128}),
        "Text": Column("text", {}, {}, "IMDB's folder aclImdb, or its train and test as tables", twin={"context": 512}),
        "Retrieval": Column("retrieval", {}, {}, "lra_release's tsv_data, new_aan_pairs.*.tsv", twin={"context": 256}),
        "Image": Column("cifar", {"grey": True}, {"grey": True}, "a folder of CIFAR-10's binary batches"),
        "Pathfinder": Column("pathfinder", {}, {"examples": 1000}, MADE, twin={"context": 1024}),
        "Path-X": Column("pathfinder", {"size": 128}, {"size": 64, "examples": 400}, MADE,
                         twin={"context": 4096, "batch": 8}),
    },
    "speech": {
        "MFCC": Column("speech", {"features": "mfcc"}, {"features": "mfcc"}, "a folder of Speech Commands' words"),
        "RAW": Column("speech", {}, {}, "a folder of Speech Commands' words"),
        "0.5x": Column("speech", {}, {}, "a folder of Speech Commands' words", metric="accuracy_half_rate"),
    },
    "pixels": {
        "sMNIST": Column("mnist", {}, {}, "a folder of MNIST's IDX files, or mnist.npz"),
        "pMNIST": Column("mnist", {"order": "reversed"}, {"order": "reversed"},
                         "a folder of MNIST's IDX files, or mnist.npz"),
        "sCIFAR": Column("cifar", {}, {}, "a folder of CIFAR-10's binary batches"),
    },
    "translation": {
        "EN-DE": Column("translation", {"target": "de", "vocab": 37000}, {}, NEWSTEST.format("de")),
        "EN-FR": Column("translation", {"target": "fr", "vocab": 32000}, {"source": "de", "target": "en"},
                        NEWSTEST.format("fr")),
    },
    "glue": {
        name: Column("glue", {"part": part}, {"part": part}, "GLUE's folder, one inside it for each of its tasks",
                     metric=metric)
        for name, part, metric in (
            ("MNLI-m", "mnli", "accuracy"), ("MNLI-mm", "mnli", "accuracy_mm"), ("QQP", "qqp", "f1"),
            ("QNLI", "qnli", "accuracy"), ("SST-2", "sst2", "accuracy"), ("CoLA", "cola", "matthews"),
            ("STS-B", "stsb", "spearman"), ("MRPC", "mrpc", "f1"), ("RTE", "rte", "accuracy"),
        )
    },
}  # fmt: skip
