// h_t = a_t h_{t-1} + b_t: a piece of the channels is walked through time, so memory is read as it lies.
#include "vec.h"

struct LinearScan {
    Tensor<3> a, b; Tensor<2> first;
    Tensor<3> every; Tensor<2> last;
    long B, T, D, threads;
};

KERNEL(linear_scan, LinearScan) {
    const long per = pieces(x.B, x.D, x.threads), team_size = team(x.B * x.T * x.D / VW, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.B; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), n = begin_of(s + 1, per, x.D) - d0;
        float* h = x.last(b) + d0;
        for (long d = 0; d < n; d++) h[d] = x.first ? x.first(b)[d0 + d] : 0.f;
        for (long t = 0; t < x.T; t++) {
            const float *at = x.a(b, t) + d0, *bt = x.b(b, t) + d0;
            float* y = x.every(b, t) + d0;
            #pragma omp simd
            for (long d = 0; d < n; d++) y[d] = h[d] = at[d] * h[d] + bt[d];
        }
    }
}

struct LinearScanBackward {
    Tensor<3> a, every; Tensor<2> first;
    Tensor<3> grad_every; Tensor<2> grad_last;
    Tensor<3> grad_a, grad_b; Tensor<2> grad_first;
    long B, T, D, threads;
};

KERNEL(linear_scan_backward, LinearScanBackward) {
    const long per = pieces(x.B, x.D, x.threads), team_size = team(x.B * x.T * x.D / VW, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.B; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), n = begin_of(s + 1, per, x.D) - d0;
        const std::vector<float> zero(x.first ? 0 : n);
        float* g = x.grad_first(b) + d0;
        for (long d = 0; d < n; d++) g[d] = x.grad_last ? x.grad_last(b)[d0 + d] : 0.f;
        for (long t = x.T - 1; t >= 0; t--) {
            const float *a = x.a(b, t) + d0, *e = x.grad_every ? x.grad_every(b, t) + d0 : nullptr;
            const float* before = t ? x.every(b, t - 1) + d0 : x.first ? x.first(b) + d0 : zero.data();
            float *ga = x.grad_a(b, t) + d0, *gb = x.grad_b(b, t) + d0;
            #pragma omp simd
            for (long d = 0; d < n; d++) {
                const float v = e ? g[d] + e[d] : g[d];
                gb[d] = v;
                ga[d] = v * before[d];
                g[d] = v * a[d];
            }
        }
    }
}
