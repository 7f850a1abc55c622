"""lm-eval's adapter for Hugging Face models runs on exported models, and scores completions as ours do."""

import json

import pytest
import torch

import longwave as lw
import longwave.hf
from longwave.models import preset, weights

ITEMS = [
    (f"{a} and {b} is", [" " + str(a + b), " " + str(a + b + 1), " none of them"], (a * b) % 3)
    for a in range(1, 5)
    for b in range(1, 6)
]
TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{label}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def score(model, question, choice):
    """Summed log-probability of a completion; END stands before the question."""
    context = [0, *question.encode()]
    tokens = torch.tensor([context + list(choice.encode())])
    with torch.no_grad():
        return float(model.log_prob(tokens) - model.log_prob(tokens[:, : len(context)]))


@pytest.mark.parametrize("mixer", ["attention", ("mamba", "attention")])
def test_zero_shot_scores_are_ours(mixer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    assert len(ITEMS) == 20
    model = lw.create_model(preset("lm", mixer=mixer, d_model=16, n_layers=2).but(init_std=None)).eval()
    lw.save(model, tmp_path / "run")
    weights.export(tmp_path / "run", tmp_path / "hf")
    rows = [dict(question=question, choices=choices, label=label) for question, choices, label in ITEMS]
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "sums.yaml").write_text(TASK.format(data=tmp_path / "data.jsonl"))
    theirs = HFLM(pretrained=str(tmp_path / "hf"), device="cpu", dtype="float32", batch_size=4, add_bos_token=True)
    assert theirs.config.model_type == ("llama" if mixer == "attention" else "longwave")
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    found = simple_evaluate(theirs, tasks=["sums"], task_manager=manager, bootstrap_iters=0, log_samples=True)
    ours = [[score(model, question, choice) for choice in choices] for question, choices, _ in ITEMS]
    got = {sample["doc_id"]: [reply[0] for reply in sample["filtered_resps"]] for sample in found["samples"]["sums"]}
    torch.testing.assert_close(torch.tensor([got[i] for i in range(20)]), torch.tensor(ours), atol=1e-3, rtol=1e-5)
    right = sum(int(torch.tensor(row).argmax()) == label for row, (_, _, label) in zip(ours, ITEMS, strict=True))
    assert found["results"]["sums"]["acc,none"] == right / 20
