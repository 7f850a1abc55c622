// minGRU in one pass: gate, candidate and recurrence; the backward pass computes gates anew rather than reading them.
#include "vec.h"

// sigmoid(x) and 1 - sigmoid(x), each to full precision
INL void gates(vf x, vf& open, vf& shut) {
    vf e = vexp2n(vabs(x) * -LOG2E), big = 1.f / (1.f + e), small = e * big;
    open = x < 0.f ? small : big;
    shut = x < 0.f ? big : small;
}
// g(x) = x + 1/2 above 0, sigmoid(x) below, and its slope
INL vf positive(vf x, vf& slope) {
    vf open, shut;
    gates(x, open, shut);
    slope = x >= 0.f ? bc(1.f) : open * shut;
    return x >= 0.f ? x + 0.5f : open;
}

struct MinGru {
    Tensor<3> gate, candidate; Tensor<2> first;
    Tensor<3> every; Tensor<2> last;
    long B, T, D, threads;
};

KERNEL(min_gru, MinGru) {
    const long per = pieces(x.B, x.D, x.threads), team_size = team(x.B * x.T * x.D / VW * 4, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.B; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), d1 = begin_of(s + 1, per, x.D);
        float* h = x.last(b);
        for (long d = d0; d < d1; d++) h[d] = x.first ? x.first(b)[d] : 0.f;
        for (long t = 0; t < x.T; t++) {
            const float *gate = x.gate(b, t), *candidate = x.candidate(b, t);
            float* y = x.every(b, t);
            vectors(d0, d1, [=](long d, auto lanes) {
                vf open, shut, slope;
                gates(lanes.ld(gate + d), open, shut);
                vf now = shut * lanes.ld(h + d) + open * positive(lanes.ld(candidate + d), slope);
                lanes.st(h + d, now), lanes.st(y + d, now);
            });
        }
    }
}

struct MinGruBackward {
    Tensor<3> gate, candidate, every; Tensor<2> first; Tensor<3> grad_every; Tensor<2> grad_last;
    Tensor<3> grad_gate, grad_candidate; Tensor<2> grad_first;
    long B, T, D, threads;
};

KERNEL(min_gru_backward, MinGruBackward) {
    const long per = pieces(x.B, x.D, x.threads), team_size = team(x.B * x.T * x.D / VW * 4, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.B; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), d1 = begin_of(s + 1, per, x.D);
        float* g = x.grad_first(b);
        for (long d = d0; d < d1; d++) g[d] = x.grad_last ? x.grad_last(b)[d] : 0.f;
        for (long t = x.T - 1; t >= 0; t--) {
            const float *gate = x.gate(b, t), *candidate = x.candidate(b, t);
            const float* before = t ? x.every(b, t - 1) : x.first ? x.first(b) : nullptr;
            const float* grad = x.grad_every ? x.grad_every(b, t) : nullptr;
            float *grad_gate = x.grad_gate(b, t), *grad_candidate = x.grad_candidate(b, t);
            vectors(d0, d1, [=](long d, auto lanes) {
                vf open, shut, slope, e = lanes.ld(g + d);
                gates(lanes.ld(gate + d), open, shut);
                vf c = positive(lanes.ld(candidate + d), slope), h = before ? lanes.ld(before + d) : bc(0.f);
                if (grad) e += lanes.ld(grad + d);
                lanes.st(grad_gate + d, e * (c - h) * open * shut);
                lanes.st(grad_candidate + d, e * open * slope);
                lanes.st(g + d, e * shut);
            });
        }
    }
}
