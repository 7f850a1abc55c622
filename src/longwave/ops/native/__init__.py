"""Kernels for the CPU: C++ with vector extensions behind ops of torch.

A kernel is two files named after its op's file; `scan.cpp` and `scan.py` are the shortest pair. All `.cpp` files become
one library per instruction set (`build.py`): carried in the wheel, or compiled when the first kernel is asked for.

`scan.cpp`, the loop. The arguments are one struct, the entry point is `KERNEL`; `vec.h` has vectors and their maths:

    struct LinearScan {                     // in the order of the signature in scan.py,
        Tensor<3> a, b; Tensor<2> first;    // then its letters in order of appearance, then the threads
        Tensor<3> every; Tensor<2> last;
        long B, T, D, threads;
    };
    KERNEL(linear_scan, LinearScan) { ... x.a(b, t)[d] ... }

No function there knows torch, keeps anything between calls, or assumes a width: tails go through `ldn` and `stn`. Rows
may lie apart in memory (strides come with each tensor), numbers within a row may not. NaN in is NaN out. Work is split
over batch rows, and channels where rows are few (`pieces`).

`scan.py`, three parts. First the call, checked: names, axes (a letter is a size, the same everywhere), `?` for what may
be None, `name:int` and `name:float` for numbers, `/int64` behind the axes for tensors of another type:

    _forward = kernel("linear_scan", "a:BTD b:BTD first:BD? every:BTD last:BD")

Then the ops of torch: functions that allocate outputs and call kernels. Tracing runs the same function on tensors
without data, where kernels only return, so `torch.compile` and `torch.export` see shapes without anything more. The
backward pass is an op too; `setup` and `gradients` are those of `torch.library.register_autograd`:

    @define("linear_scan(Tensor a, Tensor b, Tensor? first) -> (Tensor, Tensor)", setup, gradients)
    def forward(a, b, first): ...

At last the form, with the signature of the op, calling `torch.ops.longwave.linear_scan`. It brings half precision to
float32 and makes what is not contiguous along its last axis so (`rows`); `on_cpu` says when it can run:

    @linear_scan.form("native", when=on_cpu)
    def native(a, b, h=None, lengths=None): ...

`tests/test_ops.py` runs it on every case; `tests/test_native.py` runs all kernels with the address and undefined
behaviour sanitizers, on every instruction set, and on odd widths.
"""
