"""Graphs as sequences of nodes: by degree, whatever their numbers; and graphs of different size in one batch."""

import json

import pytest
import torch

import longwave as lw
from longwave import tasks
from longwave.cli import main
from longwave.data.graphs import citations
from longwave.errors import UserError
from longwave.tolerance import TOLERANCE, apart

COLOURS, NODES = 4, 7


def tiny(**options):
    torch.manual_seed(0)
    return lw.create_model("graph_mamba", d_model=16, n_layers=1, d_input=COLOURS, n_classes=COLOURS, **options)


def graphs(count):
    """Nodes of random colours, of which one hears no other, one hears one, and so on; the colour of the last."""
    colour = torch.randint(COLOURS, (count, NODES))
    heard = torch.rand(count, NODES).argsort(1)  # how many others each hears
    others = torch.rand(count, NODES, NODES).masked_fill(torch.eye(NODES).bool(), 2.0).argsort(-1).argsort(-1)
    target = colour.gather(1, heard.argmax(1, keepdim=True))[:, 0]
    return torch.nn.functional.one_hot(colour, COLOURS).float(), (others < heard[..., None]).float(), target


@pytest.mark.parametrize("head", ["tag", "classify"])
def test_numbers_of_nodes_do_not_matter(head):
    model, (nodes, edges, _), p = tiny(head=head).double().eval(), graphs(3), torch.randperm(NODES)
    nodes, edges = nodes.double(), edges.double()
    there, _ = model(nodes, edges)
    back, _ = model(nodes[:, p], edges[:, p][:, :, p])
    assert apart(back, there[:, p] if head == "tag" else there) < TOLERANCE[torch.float64]


def test_graphs_of_different_size_share_a_batch():
    model, lengths = tiny(head="tag").double().eval(), torch.tensor([7, 3, 5])
    nodes, edges = torch.randn(3, NODES, COLOURS).double(), (torch.rand(3, NODES, NODES) < 0.4).double()
    real = torch.arange(NODES) < lengths[:, None]
    dirty = torch.where(real[..., None], nodes, torch.nan)
    linked = torch.where(real[:, None] & real[..., None], edges, torch.nan)
    together, _ = model(dirty, linked, lengths)
    for b, n in enumerate(lengths.tolist()):
        alone, _ = model(nodes[b : b + 1, :n], edges[b : b + 1, :n, :n])
        assert apart(together[b, :n], alone[0]) < TOLERANCE[torch.float64]


def test_ties_are_broken_anew_in_training():
    model, edges, lengths = tiny(), torch.ones(1, NODES, NODES), torch.tensor([5])
    orders = {tuple(model.train().ordered(edges, lengths)[0].tolist()) for _ in range(20)}
    assert len(orders) > 5
    assert all(set(order[:5]) == set(range(5)) for order in orders)
    assert torch.equal(model.eval().ordered(edges, lengths), model.ordered(edges, lengths))


def test_by_degree_is_better_than_shuffled():
    right = {}
    for order in ("degree", "random"):
        model = tiny(order=order)
        optimizer = torch.optim.AdamW(lw.param_groups(model, lr=1e-2, decay=0.0))
        for _ in range(60):
            nodes, edges, target = graphs(32)
            optimizer.zero_grad()
            model.loss(nodes, edges, target).backward()
            optimizer.step()
        nodes, edges, target = graphs(500)
        with torch.no_grad():
            right[order] = (model.eval()(nodes, edges)[0].argmax(-1) == target).float().mean().item()
    assert right["degree"] > 0.95
    assert right["random"] < 0.7


@pytest.mark.parametrize(("name", "nodes", "words", "fields"), [("cora", 2708, 1433, 7), ("citeseer", 3327, 3703, 6)])
def test_citations_are_read(shared_data, name, nodes, words, fields):
    found = citations(str(shared_data / f"{name}.npz"))
    assert found.nodes.shape == (nodes, words)
    assert (found.edges == found.edges.T).all()
    assert len(set(found.label.tolist()) - {-1}) == fields
    assert len(found.train) == 20 * fields
    assert (len(found.valid), len(found.test)) == (500, 1000)
    assert not {*found.train} & {*found.test}


def test_the_task_asks_for_the_colour_of_the_hub():
    nodes, edges, target = tasks.create("graph", {"nodes": 5}, context=1, batch=50, seed=0).batch(3)
    heard = edges.sum(-1)
    assert torch.equal(heard.sort(1).values, torch.arange(5.0).expand(50, 5))
    assert not edges.diagonal(dim1=1, dim2=2).any()
    assert torch.equal(nodes[torch.arange(50), heard.argmax(1)].argmax(-1), target)


def test_fields_of_papers_are_learnt_at_the_command_line(shared_data, tmp_path, capsys):
    """From 140 of them; the field that most papers have is that of 32 % of the test."""
    data, run = str(shared_data / "cora.npz"), str(tmp_path / "run")
    task = tasks.create("graph", {"data": data}, context=1, batch=1, seed=0)
    papers, (_, _, target) = citations(data), task.batch(0)
    assert target[0, papers.train].tolist() == papers.label[papers.train].tolist()
    assert (target != -100).sum() == 140  # the others' are not shown
    how = ["--steps", "8", "--validate-every", "8", "--precision", "fp32"]
    assert main(["train", "--task", "graph", "--data", data, *how, "--out", run]) == 0
    assert main(["eval", run, "--test", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["accuracy"] > 0.65


def test_what_is_no_graph_is_told(tmp_path):
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="must be an npz file of"):
        citations(str(tmp_path / "bad.npz"))
