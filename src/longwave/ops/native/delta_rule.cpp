// S_t = diag(d_t) S_{t-1} + b_t u_t^T + k_t v_t^T with u_t = S_{t-1}^T a_t, and y_t = S_t^T q_t. Backwards in time,
// with E_t the gradient of S_t,
//
//     E_t = d_{t+1} E_{t+1} + a_{t+1} du_{t+1}^T + q_t dy_t^T        dv_t = E_t^T k_t       du_t = E_t^T b_t
//     dk_t = E_t v_t      db_t = E_t u_t      dq_t = S_t dy_t        da_t = S_{t-1} du_t
//
// u and du couple the rows of a state: `sweep` passes over it once a step, reading for the next one as it writes. With
// them known, the rest is the recurrence of matrix.h with two pairs. The gradient of a log-decay is
//
//     g_t = h_{t+1} + q_t dq_t - k_t dk_t - b_t db_t       h_t = g_t + a_t da_t       row by row,
//
// where h_{t+1}, the row sums of (d_{t+1} E_{t+1} + a_{t+1} du_{t+1}^T) S_t, is found afresh every SPAN steps.
#include "matrix.h"

struct DeltaRule {  // forward and backward: what the other needs is null
    Tensor<4> q, k, v, a, b, g, first; Tensor<1, long> lengths;
    Tensor<4> y, u, last;
    Tensor<4> grad_y, grad_last;
    Tensor<4> dq, dk, dv, da, db, dg, grad_first;
    long B, T, H, K, V, E, threads;  // E: 1 or K, a decay a head or a channel

    long length(long b) const { return lengths ? lengths[b] : T; }
    Decay lanes() const { return !g ? NONE : E == 1 ? STEP : LANE; }
};

namespace {

// One step of a column of states: S = d S + b u + c x, out = r S; and u for the next, e S.
template <int LT> INL void step(float* S, long rows, long lanes, const float* d, const float* b, vf (&u)[LT],
                                const float* c, const float* x, const float* r, float* out, const float* e) {
    vf o[LT], next[LT], xs[LT];
    for (int l = 0; l < LT; l++) o[l] = next[l] = bc(0), xs[l] = ld(x + l * VW);
    for (long i = 0; i < rows; i++) {
        const vf di = bc(d[i]), bi = bc(b[i]), ci = bc(c[i]), ri = bc(r[i]), ei = bc(e[i]);
        #pragma GCC unroll 4
        for (int l = 0; l < LT; l++) {
            vf s = ld(S + i * lanes + l * VW);
            s = s * di + bi * u[l];
            s += ci * xs[l];
            st(S + i * lanes + l * VW, s);
            o[l] += ri * s;
            next[l] += ei * s;
        }
    }
    for (int l = 0; l < LT; l++) st(out + l * VW, o[l]), u[l] = next[l];
}

// One head: its state and the chunk at hand, packed.
struct Head {
    const DeltaRule& x;
    const long K = wide(x.K), V = wide(x.V);
    Scratch room{10 * STEPS * K + 5 * STEPS * V + K * V + 4 * K};
    float *q = room.take(STEPS * K), *k = room.take(STEPS * K), *a = room.take(STEPS * K), *b = room.take(STEPS * K);
    float *d = room.take(STEPS * K), *kept = room.take(STEPS), *sum = room.take(K), *S = room.take(K * V);
    float *one = room.take(STEPS * K), *two = room.take(STEPS * K), *dq = room.take(STEPS * K);
    float *da = room.take(STEPS * K), *zero = room.take(K), *ones = room.take(K);
    float *v = room.take(STEPS * V), *dy = room.take(STEPS * V), *u = room.take(STEPS * V), *y = room.take(STEPS * V);

    explicit Head(const DeltaRule& call) : x(call) {
        std::fill_n(ones, K, 1.f);
        std::fill_n(d, STEPS * K, 1.f);
    }
    void load(long row, long h, long t, long n, long next) {
        pack(q, K, x.q(row, t, h), x.q.stride[1], n, x.K, next);
        pack(k, K, x.k(row, t, h), x.k.stride[1], n, x.K, next);
        pack(a, K, x.a(row, t, h), x.a.stride[1], n, x.K, next);
        pack(b, K, x.b(row, t, h), x.b.stride[1], n, x.K, next);
        pack(v, V, x.v(row, t, h), x.v.stride[1], n, x.V, next);
        if (x.grad_y) pack(dy, V, x.grad_y(row, t, h), x.grad_y.stride[1], n, x.V, next);
        if (!x.g) return;
        pack(x.E == 1 ? kept : d, x.E == 1 ? 1 : K, x.g(row, t, h), x.g.stride[1], n, x.E, next);
        exponentials(x.E == 1 ? kept : d, x.E == 1 ? n : n * K);
        if (x.E == 1) for (long i = 0; i < n; i++) std::fill_n(d + i * K, K, kept[i]);
    }
    template <int LT> long forward_columns(long n, long j) {
        for (; j + LT * VW <= V; j += LT * VW) {
            vf held[LT] = {};
            for (long i = 0; i < K; i++) for (int l = 0; l < LT; l++) held[l] += a[i] * ld(S + i * V + j + l * VW);
            for (long t = 0; t < n; t++) {
                for (int l = 0; l < LT; l++) st(u + t * V + j + l * VW, held[l]);
                const float* ahead = t + 1 < n ? a + (t + 1) * K : zero;
                step<LT>(S + j, K, V, d + t * K, b + t * K, held, k + t * K, v + t * V + j, q + t * K, y + t * V + j,
                         ahead);
            }
        }
        return j;
    }
    void forward(long row, long h) {
        if (x.first) pack(S, V, x.first(row, h, 0), x.first.stride[2], x.K, x.V);
        else std::fill_n(S, K * V, 0.f);
        for (long t = 0; t < x.length(row); t += STEPS) {
            const long n = std::min(STEPS, x.length(row) - t);
            load(row, h, t, n, STEPS);
            forward_columns<1>(n, forward_columns<TILE / 4>(n, 0));
            unpack(x.y(row, t, h), x.y.stride[1], y, V, n, x.V);
            if (x.u) unpack(x.u(row, t, h), x.u.stride[1], u, V, n, x.V);
        }
        for (long t = x.length(row); t < x.T; t++) std::fill_n(x.y(row, t, h), x.V, 0.f);
        if (x.last) unpack(x.last(row, h, 0), x.last.stride[2], S, V, x.K, x.V);
    }
    template <int LT> long backward_columns(float* du, long n, long j) {
        for (; j + LT * VW <= V; j += LT * VW) {
            vf held[LT] = {};
            for (long t = n - 1; t >= 0; t--) {
                const float *later = t + 1 < n ? d + (t + 1) * K : ones, *reads = t + 1 < n ? a + (t + 1) * K : zero;
                step<LT>(S + j, K, V, later, reads, held, q + t * K, dy + t * V + j, k + t * K, y + t * V + j,
                         b + t * K);
                for (int l = 0; l < LT; l++) st(du + t * V + j + l * VW, held[l]);
            }
            for (long i = 0; i < K; i++)
                for (int l = 0; l < LT; l++) {
                    float* s = S + i * V + j + l * VW;
                    st(s, d[i] * ld(s) + a[i] * held[l]);
                }
        }
        return j;
    }
    // Back in time: dv, du, and the gradient of the first state.
    void values(long row, long h, float* du) {
        std::fill_n(S, K * V, 0.f);
        if (x.grad_last) pack(S, V, x.grad_last(row, h, 0), x.grad_last.stride[2], x.K, x.V);
        for (long end = x.length(row), t; end > 0; end = t) {
            t = (end - 1) / STEPS * STEPS;
            load(row, h, t, end - t, -STEPS);
            backward_columns<1>(du + t * V, end - t, backward_columns<TILE / 4>(du + t * V, end - t, 0));
            unpack(x.dv(row, t, h), x.dv.stride[1], y, V, end - t, x.V);
        }
        if (x.grad_first) unpack(x.grad_first(row, h, 0), x.grad_first.stride[2], S, V, x.K, x.V);
    }
    // Ahead in time: dq, da, and the transposed states at the ends of spans.
    void ahead(long row, long h, const float* du, float* ends) {
        if (x.first) transpose(S, K, x.first(row, h, 0), x.K, x.V);
        else std::fill_n(S, K * V, 0.f);
        for (long t = 0; t < x.length(row); t += STEPS) {
            const long n = std::min(STEPS, x.length(row) - t);
            load(row, h, t, n, STEPS);
            pack(u, V, x.u(row, t, h), x.u.stride[1], n, x.V, STEPS);
            walk<false, true>({n, V, K, v, dy, k, x.E == 1 ? kept : d, dq, S, u, du + t * V, b, da}, x.lanes());
            unpack(x.dq(row, t, h), x.dq.stride[1], dq, K, n, x.K);
            unpack(x.da(row, t, h), x.da.stride[1], da, K, n, x.K);
            if (x.dg && ((t + n) % SPAN == 0 || t + n == x.length(row))) std::copy_n(S, K * V, ends + t / SPAN * K * V);
        }
    }
    // Back in time: dk, db, dg.
    void back(long row, long h, const float* du, const float* ends) {
        std::fill_n(S, K * V, 0.f);
        if (x.grad_last) transpose(S, K, x.grad_last(row, h, 0), x.K, x.V);
        for (long end = x.length(row), t; end > 0; end = t) {
            t = (end - 1) / STEPS * STEPS;
            const long n = end - t;
            if (x.dg && (end % SPAN == 0 || end == x.length(row)))
                overlap(sum, S, ends + t / SPAN * K * V, x.V, K, x.E);
            load(row, h, t, n, -STEPS);
            pack(u, V, x.u(row, t, h), x.u.stride[1], n, x.V, -STEPS);
            walk<true, true>({n, V, K, dy, v, q, x.E == 1 ? kept : d, one, S, du + t * V, u, a, two}, x.lanes());
            unpack(x.dk(row, t, h), x.dk.stride[1], one, K, n, x.K);
            unpack(x.db(row, t, h), x.db.stride[1], two, K, n, x.K);
            if (x.dg) decay(row, h, t, n);
        }
    }
    void decay(long row, long h, long t, long n) {
        pack(dq, K, x.dq(row, t, h), x.dq.stride[1], n, x.K);
        pack(da, K, x.da(row, t, h), x.da.stride[1], n, x.K);
        for (long i = 0; i < n * K; i += VW) {
            st(dq + i, ld(q + i) * ld(dq + i) - ld(k + i) * ld(one + i) - ld(b + i) * ld(two + i));
            st(da + i, ld(a + i) * ld(da + i));
        }
        for (long i = n - 1; i >= 0; i--) {
            float* g = x.dg(row, t + i, h);
            if (x.E == 1) dq[i * K] = total(dq + i * K, K), da[i * K] = total(da + i * K, K);
            for (long c = 0; c < x.E; c++) {  // a reset leaves nothing to have a gradient
                g[c] = d[i * K + c] == 0 ? 0 : sum[c] + dq[i * K + c];
                sum[c] = g[c] + da[i * K + c];
            }
        }
    }
    void clear(long row, long h) {
        for (long t = x.length(row); t < x.T; t++) {
            for (const Tensor<4>* grad : {&x.dq, &x.dk, &x.da, &x.db}) std::fill_n((*grad)(row, t, h), x.K, 0.f);
            std::fill_n(x.dv(row, t, h), x.V, 0.f);
            if (x.dg) std::fill_n(x.dg(row, t, h), x.E, 0.f);
        }
    }
};

}  // namespace

KERNEL(delta_rule, DeltaRule) {
    #pragma omp parallel num_threads(team(x.B * x.T * x.H * x.K * x.V / VW, x.threads))
    {
        Head head(x);
        #pragma omp for collapse(2) schedule(dynamic, 1)
        for (long b = 0; b < x.B; b++) for (long h = 0; h < x.H; h++) head.forward(b, h);
    }
}

KERNEL(delta_rule_backward, DeltaRule) {
    #pragma omp parallel num_threads(team(3 * x.B * x.T * x.H * x.K * x.V / VW, x.threads))
    {
        Head head(x);
        Scratch du(x.T * head.V), ends(x.dg ? (x.T + SPAN - 1) / SPAN * head.K * head.V : 0);
        #pragma omp for collapse(2) schedule(dynamic, 1)
        for (long b = 0; b < x.B; b++) for (long h = 0; h < x.H; h++) {
            head.values(b, h, du.block);
            head.ahead(b, h, du.block, ends.block);
            head.back(b, h, du.block, ends.block);
            head.clear(b, h);
        }
    }
}
