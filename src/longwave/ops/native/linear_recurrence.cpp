// S_t = diag(d_t) S_{t-1} + k_t v_t^T and y_t = S_t^T q_t. The gradients are three recurrences of the same form:
//
//     dq_t = S_t dy_t                            ahead in time, transposed
//     dk_t = E_t v_t,  dv_t = E_t^T k_t          back in time, with E_t = d_{t+1} E_{t+1} + q_t dy_t^T
//
// The gradient of a log-decay needs no state of its own: g_t = g_{t+1} + q_t dq_t - k_t dk_t, row by row. What rounding
// adds up in that sum is dropped every SPAN steps, where g is found afresh as the row sums of (d E) S.
#include "matrix.h"

struct LinearRecurrence {  // forward and backward: what the other needs is null
    Tensor<4> q, k, v, g, first; Tensor<1, long> lengths;
    Tensor<4> y, last;
    Tensor<4> grad_y, grad_last;
    Tensor<5> dq, dk; Tensor<4> dv, dg, grad_first;
    long B, T, G, K, H, V, E, P, threads;  // E: 1 or K, a decay a head or a channel; P: shares of a group's heads

    long length(long b) const { return lengths ? lengths[b] : T; }
    Decay rows() const { return !g ? NONE : E == 1 ? STEP : ROW; }
    Decay lanes() const { return !g ? NONE : E == 1 ? STEP : LANE; }
};

namespace {

// One head: its state and the chunk at hand, packed.
struct Head {
    const LinearRecurrence& x;
    const long K = wide(x.K), V = wide(x.V);
    Scratch room{5 * STEPS * K + 3 * STEPS * V + 2 * K * V};
    float *q = room.take(STEPS * K), *k = room.take(STEPS * K), *d = room.take(STEPS * K), *grad = room.take(STEPS * K);
    float *v = room.take(STEPS * V), *dy = room.take(STEPS * V), *y = room.take(STEPS * V), *sum = room.take(K);
    float *S = room.take(K * V), *E = room.take(K * V);

    void load(long b, long h, long t, long n, long next) {
        const long group = h / (x.H / x.G);
        pack(q, K, x.q(b, t, group), x.q.stride[1], n, x.K, next);
        pack(k, K, x.k(b, t, group), x.k.stride[1], n, x.K, next);
        pack(v, V, x.v(b, t, h), x.v.stride[1], n, x.V, next);
        if (x.grad_y) pack(dy, V, x.grad_y(b, t, h), x.grad_y.stride[1], n, x.V, next);
        if (!x.g) return;
        pack(d, x.E == 1 ? 1 : K, x.g(b, t, h), x.g.stride[1], n, x.E, next);
        exponentials(d, x.E == 1 ? n : n * K);
    }
    void forward(long b, long h) {
        if (x.first) pack(S, V, x.first(b, h, 0), x.first.stride[2], x.K, x.V);
        else std::fill(S, S + K * V, 0.f);
        for (long t = 0; t < x.length(b); t += STEPS) {
            const long n = std::min(STEPS, x.length(b) - t);
            load(b, h, t, n, STEPS);
            walk<false>({n, K, V, k, q, v, d, y, S}, x.rows());
            unpack(x.y(b, t, h), x.y.stride[1], y, V, n, x.V);
        }
        for (long t = x.length(b); t < x.T; t++) std::fill_n(x.y(b, t, h), x.V, 0.f);
        if (x.last) unpack(x.last(b, h, 0), x.last.stride[2], S, V, x.K, x.V);
    }
    // Ahead in time: dq, q dq where dg will be, and the transposed states at the ends of spans.
    void ahead(long b, long h, long share, bool add, float* ends) {
        if (x.first) transpose(S, K, x.first(b, h, 0), x.K, x.V);
        else std::fill(S, S + K * V, 0.f);
        for (long t = 0; t < x.length(b); t += STEPS) {
            const long n = std::min(STEPS, x.length(b) - t);
            load(b, h, t, n, STEPS);
            walk<false>({n, V, K, v, dy, k, d, grad, S}, x.lanes());
            unpack(x.dq(share, b, t, h / (x.H / x.G)), x.dq.stride[2], grad, K, n, x.K, add);
            if (!x.dg) continue;
            products(q, n);
            unpack(x.dg(b, t, h), x.dg.stride[1], grad, K, n, x.E);
            if ((t + n) % SPAN == 0 || t + n == x.length(b)) std::copy_n(S, K * V, ends + t / SPAN * K * V);
        }
    }
    // Back in time: dk, dv, dg and the gradient of the first state.
    void back(long b, long h, long share, bool add, const float* ends) {
        std::fill(S, S + K * V, 0.f), std::fill(E, E + K * V, 0.f);
        if (x.grad_last) {
            transpose(S, K, x.grad_last(b, h, 0), x.K, x.V);
            pack(E, V, x.grad_last(b, h, 0), x.grad_last.stride[2], x.K, x.V);
        }
        for (long end = x.length(b), t; end > 0; end = t) {
            t = (end - 1) / STEPS * STEPS;
            const long n = end - t;
            if (x.dg && (end % SPAN == 0 || end == x.length(b))) overlap(sum, S, ends + t / SPAN * K * V, x.V, K, x.E);
            load(b, h, t, n, -STEPS);
            walk<true>({n, V, K, dy, v, q, d, grad, S}, x.lanes());
            walk<true>({n, K, V, q, k, dy, d, y, E}, x.rows());
            unpack(x.dk(share, b, t, h / (x.H / x.G)), x.dk.stride[2], grad, K, n, x.K, add);
            unpack(x.dv(b, t, h), x.dv.stride[1], y, V, n, x.V);
            if (!x.dg) continue;
            products(k, n);
            for (long i = n - 1; i >= 0; i--) {
                float *g = x.dg(b, t + i, h), *kept = d + i * (x.E == 1 ? 1 : K);
                for (long c = 0; c < x.E; c++)  // a reset leaves nothing to have a gradient
                    g[c] = sum[c] = kept[c] == 0 ? 0 : sum[c] + g[c] - grad[i * K + c];
            }
        }
        if (x.grad_first) unpack(x.grad_first(b, h, 0), x.grad_first.stride[2], E, V, x.K, x.V);
    }
    // grad times y, summed over channels where they decay alike.
    void products(const float* y, long n) {
        multiply(grad, y, n * K);
        if (x.E == 1) for (long i = 0; i < n; i++) grad[i * K] = total(grad + i * K, K);
    }
};

}  // namespace

KERNEL(linear_recurrence, LinearRecurrence) {
    #pragma omp parallel num_threads(team(x.B * x.T * x.H * x.K * x.V / VW, x.threads))
    {
        Head head{x};
        #pragma omp for collapse(2) schedule(dynamic, 1)
        for (long b = 0; b < x.B; b++) for (long h = 0; h < x.H; h++) head.forward(b, h);
    }
}

KERNEL(linear_recurrence_backward, LinearRecurrence) {
    #pragma omp parallel num_threads(team(3 * x.B * x.T * x.H * x.K * x.V / VW, x.threads))
    {
        Head head{x};
        Scratch ends(x.dg ? (x.T + SPAN - 1) / SPAN * head.K * head.V : 0);
        #pragma omp for collapse(3) schedule(dynamic, 1)
        for (long b = 0; b < x.B; b++) for (long group = 0; group < x.G; group++)
        for (long share = 0; share < x.P; share++) {
            const long heads = x.H / x.G, from = heads * share / x.P, to = heads * (share + 1) / x.P;
            for (long h = from; h < to; h++) {
                head.ahead(b, group * heads + h, share, h > from, ends.block);
                head.back(b, group * heads + h, share, h > from, ends.block);
            }
            for (long t = x.length(b); t < x.T; t++) {
                std::fill_n(x.dq(share, b, t, group), x.K, 0.f), std::fill_n(x.dk(share, b, t, group), x.K, 0.f);
                for (long h = group * heads + from; h < group * heads + to; h++) {
                    std::fill_n(x.dv(b, t, h), x.V, 0.f);
                    if (x.dg) std::fill_n(x.dg(b, t, h), x.E, 0.f);
                }
            }
        }
    }
}
