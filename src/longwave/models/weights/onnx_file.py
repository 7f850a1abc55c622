"""A causal language model as an ONNX file: any number of tokens in, with the state as inputs and outputs.

    tokens [batch, time] int64, lengths [batch] int64, state.* -> logits [batch, time, vocab], next.*

By the law, reading many tokens is reading one after another. So the graph of one token is exported, and stands in a
Scan over time; a row that is past its length keeps its state. `state.safetensors` holds the state before the first
token, for one row: repeat it along its first axis for a batch. Where a state has room for so many tokens (keys and
values), its buffers are larger or smaller as the caller makes them, where the model allows that; the room must hold one
token more than the longest row.
"""

import importlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from longwave.errors import RunError, UserError
from longwave.files import write_tensors
from longwave.models.language_model import LanguageModel
from longwave.models.step import ROWS, OneToken, plain, state_dims, trace
from longwave.tolerance import TOLERANCE, apart

FILE, STATE = "model.onnx", "state.safetensors"
LARGE = 1 << 30  # weights beyond this stand in a file beside the graph: protobuf ends at 2 GiB
CAPACITY = 1024
VERSION = 10  # of ONNX's own format: what onnxruntime reads


def write_onnx(model: LanguageModel, folder: Path, capacity: int = CAPACITY) -> float:
    """Write the graph and its first state; the largest difference between its logits and the model's."""
    onnx = _package("onnx")
    names = _leaf_names(model, capacity)
    graph = _scan(onnx, _one_token(model, names, capacity), names, state_dims(model, capacity))
    onnx.helper.set_model_props(graph, {"longwave": json.dumps(model.spec.to_json())})
    large = sum(p.numel() * p.element_size() for p in model.parameters()) > LARGE
    onnx.save(graph, folder / FILE, save_as_external_data=large, location=f"{FILE}.data" if large else None)
    first = model.init_state(1, capacity=capacity).leaves()
    state = {f"state.{name}": t.detach().contiguous() for name, t in zip(names, first, strict=True)}
    write_tensors(folder / STATE, state, {"kind": "state of an ONNX graph"})
    gap = _difference(model, folder / FILE, state)
    if not gap <= TOLERANCE[torch.float32]:
        raise RunError(f"onnxruntime's logits differ from the model's by {gap:.1e}: nothing was written")
    return gap


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as missing:
        raise UserError(f"an ONNX file needs {name}: pip install 'longwave[onnx]'") from missing


def _leaf_names(model: LanguageModel, capacity: int) -> list[str]:
    """Where each tensor of the state lies in it: 0.0.k"""
    paths, _ = pytree.tree_flatten_with_path(model.init_state(1, capacity=capacity))
    keys = [pytree.keystr(path) for path, t in paths if t is not None]
    return [re.sub(r"\.parts\[(\d+)\]", r".\1", key).replace("[", ".").replace("]", "").lstrip(".") for key in keys]


def _one_token(model: LanguageModel, names: list[str], capacity: int) -> Any:
    _package("onnxscript")
    step = OneToken(model)
    program = trace(step, torch.zeros(ROWS, dtype=torch.long), torch.ones(ROWS, dtype=torch.long), capacity)
    inputs = ["token", "live", *(f"now.{name}" for name in names)]
    outputs = ["logits_now", *(f"then.{name}" for name in names)]
    with plain(step, 1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = torch.onnx.export(
                program,
                dynamo=True,
                input_names=inputs,
                output_names=outputs,
                verbose=False,
                opset_version=20,
                optimize=False,  # its optimizer takes a small epsilon for zero
            )
        except Exception as problem:  # of many kinds
            while problem.__cause__ is not None:  # the first of them says what is missing
                problem = problem.__cause__  # type: ignore[assignment]
            why = next((line for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
            raise UserError(f"ONNX has no form of this model's step: {why.strip()}") from problem
    assert made is not None
    return made.model_proto


def _scan(onnx: Any, one: Any, names: list[str], dims: list[dict[int, Any]]) -> Any:
    """The graph of one token in a Scan over time; its weights move out of the loop."""
    make, kinds = onnx.helper, onnx.TensorProto
    body = one.graph
    weights = list(body.initializer)
    del body.initializer[:]
    by_name = {each.name: each for each in [*body.input, *body.output]}
    order = [*(f"now.{name}" for name in names), "token", "live"], [*(f"then.{name}" for name in names), "logits_now"]
    for field, wanted in zip((body.input, body.output), order, strict=True):
        kept = [by_name[name] for name in wanted]
        del field[:]
        field.extend(kept)
    states = []
    for i, (name, axes) in enumerate(zip(names, dims, strict=True)):
        kind = body.input[i].type.tensor_type
        shape = [axes.get(axis, d.dim_value) for axis, d in enumerate(kind.shape.dim)]
        states.append((name, kind.elem_type, shape))
    vocab = body.output[-1].type.tensor_type.shape.dim[-1].dim_value
    inputs = [make.make_tensor_value_info("tokens", kinds.INT64, ["batch", "time"]),
              make.make_tensor_value_info("lengths", kinds.INT64, ["batch"]),
              *(make.make_tensor_value_info(f"state.{n}", kind, shape) for n, kind, shape in states)]  # fmt: skip
    outputs = [make.make_tensor_value_info("logits", kinds.FLOAT, ["batch", "time", vocab]),
               *(make.make_tensor_value_info(f"next.{n}", kind, shape) for n, kind, shape in states)]  # fmt: skip
    numbers = {"outer_zero": [0], "outer_one": [1], "outer_axis": [1]}
    weights += [make.make_tensor(n, kinds.INT64, [] if n != "outer_axis" else [1], v) for n, v in numbers.items()]
    nodes = [
        make.make_node("Shape", ["tokens"], ["outer_time_shape"], start=1, end=2),
        make.make_node("Squeeze", ["outer_time_shape"], ["outer_time"]),
        make.make_node("Range", ["outer_zero", "outer_time", "outer_one"], ["outer_places"]),
        make.make_node("Unsqueeze", ["lengths", "outer_axis"], ["outer_column"]),
        make.make_node("Less", ["outer_places", "outer_column"], ["outer_real"]),
        make.make_node("Cast", ["outer_real"], ["outer_live"], to=kinds.INT64),
        make.make_node(
            "Scan", [*(f"state.{n}" for n in names), "tokens", "outer_live"], [*(f"next.{n}" for n in names), "logits"],
            body=body, num_scan_inputs=2, scan_input_axes=[1, 1], scan_output_axes=[1],
        ),
    ]  # fmt: skip
    graph = make.make_graph(nodes, "longwave", inputs, outputs, weights)
    return make.make_model(
        graph, opset_imports=list(one.opset_import), functions=list(one.functions), ir_version=VERSION
    )


def _difference(model: LanguageModel, file: Path, state: dict[str, Tensor]) -> float:
    """Ragged rows in a piece of several tokens, then one token more, beside the model's own answer to the whole."""
    runtime = _package("onnxruntime")
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    tokens = torch.randint(len(model.out), (3, 6), generator=torch.Generator().manual_seed(0))
    held = {name: t.repeat(3, *[1] * (t.ndim - 1)).numpy() for name, t in state.items()}
    worst = 0.0
    with torch.no_grad():
        for b, count in enumerate((5, 3, 0)):
            lengths = torch.tensor([5, 3, 0])
            if b == 0:
                logits, *after = session.run(
                    None, {"tokens": tokens[:, :5].numpy(), "lengths": lengths.numpy(), **held}
                )
                again = dict(zip(held, after, strict=True))
                ones = torch.ones(3, dtype=torch.long)
                last, *_ = session.run(None, {"tokens": tokens[:, 5:].numpy(), "lengths": ones.numpy(), **again})
            read = torch.cat([tokens[b, :count], tokens[b, 5:]])
            want = model.eval()(read[None])[0][0]
            got = torch.cat([torch.from_numpy(logits[b, :count]), torch.from_numpy(last[b])])
            worst = max(worst, apart(got, want))
    return worst
