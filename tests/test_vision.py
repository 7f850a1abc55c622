"""Models of images: what published ones compute, digits that are learned, weights that are found."""

import hashlib
import json
import re

import pytest
import sklearn.datasets
import torch
import torch.nn.functional as F
import transformers

import longwave as lw
from longwave.errors import UserError
from longwave.models import backbones, preset, weights
from longwave.models.weights import families
from longwave.models.weights.names import piece

CLOSE = 1e-5


@pytest.fixture(scope="module")
def digits():
    """1797 images of 8 x 8 pixels from 0 to 16, in an order of their own, and their labels."""
    images, labels = sklearn.datasets.load_digits(return_X_y=True)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    return torch.from_numpy(images).float().view(-1, 1, 8, 8)[order], torch.from_numpy(labels)[order]


def test_patches_are_embedded_by_a_strided_convolution():
    model = lw.create_model("vit", size=12, patch=4, d_model=8, n_layers=1, n_heads=2, n_classes=3)
    images = torch.randn(2, 3, 12, 12)
    weight = model.embed.weight.view(8, 3, 4, 4)
    wanted = F.conv2d(images, weight, model.embed.bias, stride=4).flatten(2).mT
    torch.testing.assert_close(model.embed(model.patches(images)), wanted)
    with pytest.raises(UserError, match=r"images of shape \[3, 12, 12\]"):
        model(torch.randn(2, 3, 8, 8))


def test_a_vit_learns_digits(digits):
    images, labels = digits[0] / 8 - 1, digits[1]
    spec = preset("vit", size=8, patch=2, channels=1, d_model=32, n_layers=2, n_heads=4, n_classes=10)
    model = lw.create_model(spec.but(init_std=0.1))
    optimizer = torch.optim.AdamW(lw.param_groups(model, lr=8e-3, decay=0.05), betas=(0.9, 0.98))
    steps, held_out = 300, 360
    for step in range(steps):
        at = torch.randint(held_out, len(images), (64,))
        for group in optimizer.param_groups:
            group["lr"] = 8e-3 * min((step + 1) / 40, 1 - step / steps)
        optimizer.zero_grad()
        model.loss(images[at] + 0.3 * torch.randn(64, 1, 8, 8), labels[at]).backward()
        optimizer.step()
    with torch.no_grad():
        right = model.eval()(images[:held_out])[0].argmax(-1) == labels[:held_out]
    assert right.float().mean() >= 0.95


def resnets(kind):
    """A random ResNet of transformers, its statistics random, too, and ours with its weights."""
    grow = 4 if kind == "bottleneck" else 1
    sizes = dict(depths=[2, 1, 1], hidden_sizes=[8 * grow, 16 * grow, 32 * grow], embedding_size=8, layer_type=kind)
    theirs = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, num_labels=5)).eval()
    for name, t in theirs.state_dict().items():
        if t.is_floating_point():
            t.add_(0.1 * torch.randn_like(t)).abs_() if name.endswith("var") else t.add_(0.1 * torch.randn_like(t))
    preset = dict(basic="resnet18", bottleneck="resnet50")[kind]
    ours = lw.create_model(preset, depths=(2, 1, 1), width=8, n_classes=5).eval()
    made = {}
    for key, t in theirs.state_dict().items():
        *at, part, leaf = key.split(".")
        kind_of = dict(convolution="conv", normalization="bn").get(part)
        if "embedder" in at:
            name = f"{kind_of}1"
        elif "shortcut" in at:
            name = f"layer{int(at[3]) + 1}.{at[5]}.downsample.{int(kind_of == 'bn')}"
        elif "layer" in at:
            name = f"layer{int(at[3]) + 1}.{at[5]}.{kind_of}{int(at[7]) + 1}"
        else:
            name = "fc"
        made[f"{name}.{leaf}"] = t
    ours.load_state_dict(made)
    return theirs, ours


@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_a_resnet_is_that_of_transformers(kind):
    theirs, ours = resnets(kind)
    images = torch.randn(2, 3, 65, 48)
    torch.testing.assert_close(ours(images)[0], theirs(images).logits, rtol=0, atol=CLOSE)
    grid = theirs.resnet(images).last_hidden_state
    torch.testing.assert_close(ours.encode(images), grid.flatten(2).mT, rtol=0, atol=CLOSE)
    theirs.train()
    ours.train()
    torch.testing.assert_close(ours(images)[0], theirs(images).logits, rtol=0, atol=10 * CLOSE)
    torch.testing.assert_close(ours.bn1.running_mean, theirs.resnet.embedder.embedder.normalization.running_mean)


def test_names_and_shapes_are_those_of_torchvision():
    with torch.device("meta"):
        found = {name: tuple(t.shape) for name, t in lw.create_model("resnet50").state_dict().items()}
    assert len(found) == 320
    published = {  # of resnet50-0676ba61.pth
        "conv1.weight": (64, 3, 7, 7), "bn1.running_var": (64,), "layer1.0.conv1.weight": (64, 64, 1, 1),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer1.0.downsample.1.bias": (256,),
        "layer2.0.conv2.weight": (128, 128, 3, 3), "layer3.5.bn3.weight": (1024,),
        "layer4.2.conv3.weight": (2048, 512, 1, 1), "layer4.0.downsample.0.weight": (2048, 1024, 1, 1),
        "fc.weight": (1000, 2048), "fc.bias": (1000,),
    }  # fmt: skip
    assert published.items() <= found.items()
    with torch.device("meta"):
        small = {name: tuple(t.shape) for name, t in lw.create_model("resnet18").state_dict().items()}
    assert len(small) == 122
    assert small["layer2.0.conv1.weight"] == (128, 64, 3, 3)
    assert "layer1.0.downsample.0.weight" not in small


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A file such as torchvision's: weights of a ResNet-18 with its classes, named after its hash."""
    model = lw.create_model("resnet18", n_classes=2)
    torch.save({name: t for name, t in model.state_dict().items() if "tracked" not in name}, tmp_path / "made")
    name = f"resnet18-{hashlib.sha256((tmp_path / 'made').read_bytes()).hexdigest()[:8]}.pth"
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    (tmp_path / "made").rename(tmp_path / "hub" / "checkpoints" / name)
    monkeypatch.setitem(backbones.PUBLISHED, "resnet18", {"IMAGENET1K_V1": name})
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return model, tmp_path / "hub" / "checkpoints" / name


def test_a_backbone_finds_its_weights(stored):
    model, _ = stored
    images = torch.randn(1, 3, 32, 32)
    for name in ("IMAGENET1K_V1", "DEFAULT"):
        found = lw.backbone("resnet18", weights=name, frozen=True)
        features = found(images)[0]
        assert features.shape == (1, 512)
        torch.testing.assert_close(model.fc(features), model.eval()(images)[0])
    before = {key: t.clone() for key, t in found.state_dict().items()}
    found.train()(images)
    assert all(torch.equal(t, before[key]) for key, t in found.state_dict().items())
    assert not any(p.requires_grad for p in found.parameters())
    assert all(p.requires_grad for p in lw.backbone("resnet18", weights="DEFAULT").parameters())
    with torch.device("meta"):
        assert lw.backbone("resnet50")(torch.randn(1, 3, 32, 32))[0].shape == (1, 2048)


def test_what_a_backbone_cannot_find_is_told(stored, tmp_path):
    _, file = stored
    with pytest.raises(UserError, match="did you mean 'resnet50'"):
        lw.backbone("resnet500")
    with pytest.raises(UserError, match="did you mean 'IMAGENET1K_V1'"):
        lw.backbone("resnet18", weights="IMAGENET1K_V3")
    with pytest.raises(UserError, match="put torchvision's file"):
        lw.backbone("resnet50", weights="IMAGENET1K_V2")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match="is damaged: its SHA-256"):
        lw.backbone("resnet18", weights="DEFAULT")


STORED = {  # a name in the memory of transformers: in its files
    r"\.layers\.(\d+)\.(attention|mlp|layernorm)": r".encoder.layer.\1.\2",
    r"attention\.o_proj": "attention.output.dense",
    r"attention\.q_proj": "attention.attention.query", r"attention\.k_proj": "attention.attention.key",
    r"attention\.v_proj": "attention.attention.value", r"mlp\.fc1": "intermediate.dense", r"mlp\.fc2": "output.dense",
}  # fmt: skip


def slopes(ours, theirs):
    """The gradients of ours and of theirs, under the names of their files."""
    found = {}
    for name, p in theirs.named_parameters():
        for here, there in STORED.items():
            name = re.sub(here, there, name)
        found[name] = p.grad
    family = next(f for f in families.all_families() if theirs.config.model_type in f.TYPES)
    parts = family.names(ours)
    return {name: t for key, p in ours.named_parameters() for name, t in piece(parts[key]).write(p.grad)}, found


@pytest.mark.parametrize("kind", ["vit", "resnet"])
def test_published_weights_come_in_and_go_out(kind, tmp_path):
    if kind == "vit":
        sizes = dict(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, image_size=8)
        config = transformers.ViTConfig(**sizes, patch_size=4, num_channels=1, num_labels=3)
        theirs, images = transformers.ViTForImageClassification(config).eval(), torch.randn(2, 1, 8, 8)
    else:
        theirs, images = resnets("bottleneck")[0], torch.randn(2, 3, 40, 40)
    theirs.save_pretrained(tmp_path / "theirs")
    assert weights.bring(tmp_path / "theirs", tmp_path / "ours").difference <= CLOSE
    ours = lw.load(tmp_path / "ours").eval()
    torch.testing.assert_close(ours(images)[0], theirs(images).logits, rtol=0, atol=CLOSE)
    target = torch.tensor([2, 0])
    ours.loss(images, target).backward()
    F.cross_entropy(theirs(images).logits, target).backward()
    torch.testing.assert_close(*slopes(ours, theirs), rtol=1e-3, atol=CLOSE)
    assert weights.export(tmp_path / "ours", tmp_path / "back").difference <= CLOSE
    again = type(theirs).from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(images).logits, theirs(images).logits, rtol=0, atol=CLOSE)


def test_captions_are_those_of_transformers(tmp_path):
    """In, token by token from the state, greedily, gradients, and out; the config has what old files say."""
    encoder = transformers.ViTConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
                                     image_size=8, patch_size=4, num_channels=1)  # fmt: skip
    decoder = transformers.GPT2Config(n_embd=8, n_layer=2, n_head=4, vocab_size=40, n_positions=32, bos_token_id=39,
                                      eos_token_id=39)  # fmt: skip
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    theirs = transformers.VisionEncoderDecoderModel(config).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(0.2 * torch.randn_like(p))
    theirs.save_pretrained(tmp_path / "theirs")
    file = tmp_path / "theirs" / "config.json"
    values = json.loads(file.read_text())
    values["decoder"] |= dict(chunk_size_feed_forward=0, max_length=20, num_beams=1, pruned_heads={})
    file.write_text(json.dumps(values))
    assert weights.bring(tmp_path / "theirs", tmp_path / "ours").difference <= CLOSE
    ours = lw.load(tmp_path / "ours").eval()

    images, tokens = torch.randn(3, 1, 8, 8), torch.randint(40, (3, 9))
    wanted = theirs(images, decoder_input_ids=tokens).logits
    torch.testing.assert_close(ours(tokens, ours.init_state(images))[0], wanted, rtol=0, atol=CLOSE)
    with torch.no_grad():
        state, pieces = ours.init_state(images), []
        for t in range(9):
            y, state = ours(tokens[:, t : t + 1], state)
            pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, 1), wanted, rtol=0, atol=CLOSE)
    token, state, said = torch.full((3, 1), 39), ours.init_state(images), []
    for _ in range(12):
        y, state = ours(token, state)
        token = y.argmax(-1)
        said.append(token)
    greedy = theirs.generate(images, decoder_start_token_id=39, max_new_tokens=12, do_sample=False, pad_token_id=39)
    mine = torch.cat(said, 1)
    assert [_until(row, 39) for row in mine.tolist()] == [_until(row, 39) for row in greedy[:, 1:].tolist()]

    ours.loss(images, tokens).backward()
    F.cross_entropy(theirs(images, decoder_input_ids=tokens[:, :-1]).logits.mT, tokens[:, 1:]).backward()
    mine, right = slopes(ours, theirs)
    torch.testing.assert_close(mine, {name: t for name, t in right.items() if "pooler" not in name},
                               rtol=1e-3, atol=CLOSE)  # fmt: skip
    assert weights.export(tmp_path / "ours", tmp_path / "back").difference <= CLOSE
    again = transformers.VisionEncoderDecoderModel.from_pretrained(tmp_path / "back").eval()
    torch.testing.assert_close(again(images, decoder_input_ids=tokens).logits, wanted, rtol=0, atol=CLOSE)
    lw.save(lw.create_model("vit_gpt2", vocab=40, size=8, patch=4, d_model=8, n_layers=1, n_heads=2), tmp_path / "own")
    assert weights.export(tmp_path / "own", tmp_path / "published").family == "vision-encoder-decoder"


def _until(row, end):
    return row[: row.index(end)] if end in row else row
