"""The library of kernels: built or not, shared, forked, traced, on every instruction set, under sanitizers."""

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from longwave import ops
from longwave.errors import UserError
from longwave.mixers import create
from longwave.ops.cases import Make
from longwave.ops.dispatch import ALL
from longwave.ops.native import build
from longwave.ops.native.bind import Kernel
from longwave.tolerance import TOLERANCE, apart

HOME = Path(__file__).resolve().parents[1]
KERNELS = [op.name for op in ALL.values() if any(form.name == "native" for form in op.forms())]
SANITIZE = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined"
needs_library = pytest.mark.skipif(bool(build.reason()), reason=build.reason())

TRAIN = """
import torch, longwave as lw
from longwave.ops.dispatch import ALL
mixer = lw.create_mixer("mamba", d_model=8)
x = torch.randn(2, 20, 8)
for _ in range(2):
    mixer(x)[0].square().mean().backward()
assert all(p.grad is not None and p.grad.isfinite().all() for p in mixer.parameters())
x = torch.ones(1, 20, 3)
print(ALL["linear_scan"].choose(x, x).backend)
"""


def python(program, *, check=True, **environment):
    """Run a program in a process of its own, one thread unless it says otherwise."""
    environment = {**os.environ, "PYTHONPATH": f"{HOME / 'src'}:{HOME / 'tests'}", **environment}
    argv = [sys.executable, *([program] if isinstance(program, str) and program.endswith(".py") else ["-c", program])]
    ran = subprocess.run(argv, capture_output=True, text=True, env=environment, timeout=120)
    assert not check or ran.returncode == 0, ran.stdout + ran.stderr
    return ran


def compile_once(folder, isa, extra=""):
    """Compiled by whichever process of the test run comes first, kept for the others."""
    path = Path(folder) / build.file_name(isa, extra)
    return path if path.exists() else build.compile_into(Path(folder), isa, extra)


@pytest.fixture
def kept(request):
    """A folder that lasts from one test run to the next."""
    return Path(request.config.cache.mkdir("kernels"))


def first_case(op, dtype=torch.float32, grad=True):
    """Arguments that the kernel takes, the first that need it to."""
    native = next(form for form in op.forms() if form.name == "native")
    return next(case for _, case in op.cases(Make(dtype, grad=grad)) if not native.when(**case))


def test_without_a_compiler_torch_does_it_and_that_is_said_once(tmp_path):
    nothing = dict(PATH=str(tmp_path), CXX="", XDG_CACHE_HOME=str(tmp_path))
    ran = python(TRAIN, **nothing)
    assert ran.stdout.split() == ["torch"]
    assert ran.stderr.count("no native kernels") == 1 and "install g++" in ran.stderr
    assert "install g++" in python("import longwave as lw; lw.doctor()", **nothing).stdout
    asked = python(TRAIN, **nothing, LONGWAVE_BACKEND="torch")
    assert asked.stdout.split() == ["torch"] and not asked.stderr


def test_what_is_asked_for_and_is_not_there_is_named(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(build.NoLibraryError, match="CXX=no-such-compiler is no command"):
        build.compiler()
    monkeypatch.setenv("LONGWAVE_NATIVE_ISA", "z80")
    with pytest.raises(build.NoLibraryError, match="LONGWAVE_NATIVE_ISA=z80: there is "):
        build.best_isa()


@needs_library
def test_a_compiler_that_fails_is_quoted(tmp_path):
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'fatal error: no such header' >&2; exit 1\n")
    broken.chmod(0o755)
    ran = python(TRAIN, CXX=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert ran.stdout.split() == ["torch"] and "no such header" in ran.stderr
    assert [entry.name for entry in (tmp_path / "longwave").iterdir()] == []


@needs_library
def test_two_processes_compile_at_once(tmp_path):
    """With a compiler that is quick, for the sake of the test: it copies the library there is."""
    there = build.library()._name
    quick = tmp_path / "c++"
    quick.write_text(f'#!/bin/sh\nfor last; do :; done\nsleep 0.2\nexec cp {there} "$last"\n')
    quick.chmod(0o755)
    environment = dict(os.environ, PYTHONPATH=str(HOME / "src"), CXX=str(quick), XDG_CACHE_HOME=str(tmp_path))
    both = [
        subprocess.Popen([sys.executable, "-c", TRAIN], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=120)[0].split() for process in both] == [["native"], ["native"]]
    assert [entry.name for entry in (tmp_path / "longwave").iterdir()] == [Path(there).name]


@needs_library
def test_a_forked_child_computes():
    ran = python(
        """
import os, torch
from longwave import ops
torch.set_num_threads(2)
a = torch.rand(4, 4000, 64)
right = ops.linear_scan(a, a)[0]
child = os.fork()
if not child:
    h = ops.linear_scan(a, a)[0]
    os._exit(0 if (h.numpy() == right.numpy()).all() else 1)  # torch itself would wait for its lost threads
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert ran.stdout.split() == ["0"]


@needs_library
def test_threads_compute_side_by_side():
    arguments = first_case(ALL["selective_scan"], grad=False)
    right = ops.selective_scan(**arguments)[0]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: ops.selective_scan(**arguments)[0], range(64)))
    assert all(torch.equal(y, right) for y in found)


TRACE = """
import torch
from longwave.ops.cases import Make
from longwave.ops.dispatch import ALL

for op in (ALL[name] for name in NAMES):
    arguments = next(case for _, case in op.cases(Make()))
    inputs = [t for t in torch.utils._pytree.tree_leaves(arguments) if torch.is_tensor(t) and t.requires_grad]

    class Model(torch.nn.Module):
        def forward(self, arguments):
            return op(**arguments)[0]

    traced = torch.compile(Model(), fullgraph=True, backend="aot_eager")(arguments)  # the first call of all
    right = Model()(arguments)
    assert torch.equal(traced, right)
    for got, wanted in zip(*(torch.autograd.grad(y.sum(), inputs) for y in (traced, right)), strict=True):
        assert torch.equal(got, wanted)
    exported = torch.export.export(Model(), (arguments,))
    assert any("longwave" in str(node.target) for node in exported.graph.nodes)
    assert torch.equal(exported.module()(arguments), right)
    print(op.name)
"""


@needs_library
def test_tracing_sees_through():
    """In another process: what checks shapes here cannot be traced."""
    names = ["linear_scan", "min_gru", "selective_scan", "wkv"]
    assert python(TRACE.replace("NAMES", repr(names))).stdout.split() == names


@needs_library
@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", KERNELS)
def test_nan_in_any_input_comes_out(name, sign):
    op = ALL[name]
    nan = torch.copysign(torch.tensor(torch.nan), torch.tensor(sign))
    native = next(form for form in op.forms() if form.name == "native")
    case = first_case(op, grad=False)
    leaves, structure = torch.utils._pytree.tree_flatten(case)
    for i, leaf in enumerate(leaves):
        if not torch.is_tensor(leaf) or not leaf.is_floating_point():
            continue
        poisoned = leaf.clone()
        poisoned.view(-1)[0] = nan
        given = torch.utils._pytree.tree_unflatten([*leaves[:i], poisoned, *leaves[i + 1 :]], structure)
        found, wanted = (any_nan(run(**given)) for run in (native.run, op.reference))
        assert found is wanted, f"input {i}"


def any_nan(out):
    return any(bool(t.isnan().any()) for t in tensors(out))


@needs_library
def test_rows_may_lie_apart_in_memory():
    wide = torch.randn(2, 60, 3 * 16)
    a, b, c = wide.chunk(3, -1)
    assert torch.equal(ops.min_gru(a, b)[0], ops.min_gru(a.contiguous(), b.contiguous())[0])
    across = torch.randn(2, 16, 60).mT
    assert torch.equal(ops.min_gru(across, c)[0], ops.min_gru(across.contiguous(), c)[0])


@needs_library
@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_gated_cells_answer_alike_with_and_without_a_backward_pass(name):
    op = ALL[name]
    for case, given in op.cases(Make()):
        with ops.use("native"):
            kept = tensors(op(**given))
            with torch.no_grad():
                plain = tensors(op(**given))
        assert kept[0].requires_grad and len(kept) == len(plain), case
        assert all(map(torch.equal, plain, kept)), case


def tensors(out):
    return [t for t in torch.utils._pytree.tree_leaves(out) if torch.is_tensor(t)]


@needs_library
def test_what_a_kernel_is_given_is_checked():
    kernel = Kernel("min_gru", "gate:BTD candidate:BTD first:BD? every:BTD last:BD")
    x, last = torch.ones(2, 3, 4), torch.ones(2, 4)
    for given, said in (
        ((x, x[:, :2], None, x, last), r"candidate must be \[B T D\]"),
        ((x, x.double(), None, x, last), "candidate must be torch.float32"),
        ((x.mT.contiguous().mT, x, None, x, last), "gate must be contiguous along its last axis"),
        ((None, x, None, x, last), "gate may not be None"),
        ((x.to("meta"), x, None, x, last), "gate must be torch.float32 on the CPU"),
    ):
        with pytest.raises(TypeError, match=said):
            kernel(*given)
    with pytest.raises(TypeError, match="the struct has"):
        Kernel("min_gru", "gate:BTD")(x)


@needs_library
def test_second_derivatives_are_refused():
    arguments = first_case(ALL["linear_scan"])
    (slope,) = torch.autograd.grad(ops.linear_scan(**arguments)[0].sum(), arguments["a"], create_graph=True)
    with pytest.raises(UserError, match="first derivatives only"):
        slope.sum().backward()


@needs_library
@pytest.mark.parametrize("name", ["mamba", "s4d", "gla", "lstm"])
def test_mixers_answer_as_they_do_in_torch(name):
    mixer, x = create(name, 16), torch.randn(2, 70, 16)
    for dtype in (torch.float32, torch.bfloat16):
        mixer, given = mixer.to(dtype), x.to(dtype)
        y = mixer(given, mixer.init_state(2))[0]
        with ops.use("torch"):
            assert apart(y, mixer(given, mixer.init_state(2))[0]) <= TOLERANCE[dtype]


@needs_library
def test_every_instruction_set_answers_alike(kept):
    for isa in build.isas():
        if build.ISAS[isa][0] <= build.ISAS[build.best_isa()][0]:
            path = compile_once(kept, isa)
            ran = subprocess.run(
                [sys.executable, str(HOME / "tests" / "check_kernels.py"), str(path)],
                env=dict(os.environ, PYTHONPATH=str(HOME / "src")), capture_output=True, text=True,
            )  # fmt: skip
            assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_library
def test_sanitizers_find_nothing(kept):
    isa = build.isas()[-1]
    cxx = build.compiler()[0]
    runtimes = [
        subprocess.run([cxx, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(Path(runtime).is_absolute() for runtime in runtimes):
        pytest.skip(f"{cxx} comes without the libraries of its sanitizers")
    environment = dict(
        os.environ, PYTHONPATH=str(HOME / "src"), LD_PRELOAD=":".join(runtimes), OMP_NUM_THREADS="2",
        ASAN_OPTIONS="detect_leaks=0", UBSAN_OPTIONS="print_stacktrace=1",
    )  # fmt: skip
    path = compile_once(kept, isa, SANITIZE)
    ran = subprocess.run([sys.executable, str(HOME / "tests" / "check_kernels.py"), str(path)], env=environment,
                         capture_output=True, text=True)  # fmt: skip
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-4000:]


@needs_library
def test_a_wheel_carries_the_libraries(tmp_path):
    """Installed without a compiler and without a cache, it has kernels."""
    quick = tmp_path / "c++"
    quick.write_text(f'#!/bin/sh\nfor last; do :; done\nexec cp {build.library()._name} "$last"\n')
    quick.chmod(0o755)
    built = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=HOME,
                           env=dict(os.environ, CXX=str(quick)), capture_output=True, text=True)  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-any" not in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if "gomp" in name]
        archive.extractall(tmp_path / "site")
    libraries = sorted(path.name for path in (tmp_path / "site/longwave/ops/native/lib").iterdir())
    assert libraries == sorted(build.file_name(isa) for isa in build.isas())
    environment = dict(PATH=str(tmp_path / "site"), CXX="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    ran = subprocess.run([sys.executable, "-c", TRAIN], capture_output=True, text=True,
                         env={**os.environ, **environment, "PYTHONPATH": str(tmp_path / "site")})  # fmt: skip
    assert ran.stdout.split() == ["native"] and not ran.stderr


def test_a_wheel_without_a_compiler_is_pure(tmp_path):
    built = subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], cwd=HOME,
                           env=dict(os.environ, CXX="no-such-compiler"), capture_output=True, text=True)  # fmt: skip
    assert built.returncode == 0 and "carries no native kernels" in built.stderr, built.stderr
    assert "py3-none-any" in next(tmp_path.glob("*.whl")).name
