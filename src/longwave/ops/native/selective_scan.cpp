// Mamba's scan. A vector is VW channels, each with all its states, so that nothing is summed across a vector. Time goes in chunks of K steps: what does not depend on the state is computed for a whole chunk first, so
// that its latency is not in the loop, and the gate is applied last. Backwards, chunks run in reverse from the states
// kept at their starts; states and decays of a chunk are computed once more into a buffer.
#include "vec.h"

static const long MOST = 64;  // steps of a chunk
static const int BLOCK = VW == 16 ? 16 : 8;  // states at once

struct SelectiveScan {
    Tensor<3> u, dt; Tensor<2> A; Tensor<3> B, C; Tensor<1> skip; Tensor<3> z, first;  // D last, for states too
    Tensor<3> y, last; Tensor<4> starts;
    long K, rows, T, D, N, kept_chunks, threads;
};

// One block of states over a chunk: h is [n, VW], a the same; y += C h. Keeps states and decays where asked.
template <int n, bool keep>
INL void states(const vf* a, vf* h, const vf* delta, const vf* xs, vf* ys, long steps, const float* B, long next_B,
                const float* C, long next_C, vf* kept, vf* decays, long N) {
    constexpr int SIDE = std::min(n, VW == 16 ? 8 : 2);  // exponentials side by side, as there are registers
    for (long t = 0; t < steps; t++, B += next_B, C += next_C) {
        const vf step = delta[t], input = xs[t];
        vf sums[2] = {ys[t], {}};
        #pragma GCC unroll 16
        for (int i = 0; i < n; i += SIDE) {
            vf decay[SIDE];
            vexp2_quick<SIDE>(decay, step, a + i);
            #pragma GCC unroll 8
            for (int j = 0; j < SIDE; j++) {
                const vf now = decay[j] * h[i + j] + input * B[i + j];
                sums[j & 1] += now * C[i + j];
                h[i + j] = now;
                if (keep) decays[t * N + i + j] = decay[j], kept[t * N + i + j] = now;
            }
        }
        ys[t] = sums[0] + sums[1];
    }
}

template <bool keep, class Rows>
INL void all_states(const vf* a, vf* h, const vf* delta, const vf* xs, vf* ys, long steps, const Rows& B, const Rows& C,
                    long b, long t0, vf* kept, vf* decays, long N) {
    const float *Bt = B(b, t0), *Ct = C(b, t0);
    long i = 0;
    auto block = [&](auto n) {
        for (; i + n <= N; i += n)
            states<n, keep>(a + i, h + i, delta, xs, ys, steps, Bt + i, B.stride[1], Ct + i, C.stride[1], kept + i,
                            decays + i, N);
    };
    block(Count<BLOCK>{}), block(Count<4>{}), block(Count<1>{});
}

INL vf positive_nan(vf x) { return x == x ? x : bc(__builtin_nanf("")); }

KERNEL(selective_scan, SelectiveScan) {
    const long per = pieces(x.rows, x.D, x.threads), N = x.N, chunks = (x.T + x.K - 1) / x.K;
    const int threads = team(x.rows * x.T * x.D * N / VW, x.threads);
    #pragma omp parallel num_threads(threads)
    {
    std::vector<vf> space(2 * N + 3 * MOST);
    vf *a = space.data(), *h = a + N, *delta = h + N, *xs = delta + MOST, *ys = xs + MOST;
    #pragma omp for collapse(2) schedule(dynamic, 1)
    for (long b = 0; b < x.rows; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), d1 = begin_of(s + 1, per, x.D);
        for (long c = 0; c < chunks; c++) for (long d = d0; d < d1; d += VW) {
            const long w = x.D - d, t0 = c * x.K, steps = std::min(x.T - t0, x.K);
            for (long n = 0; n < N; n++) {
                h[n] = c ? ldn(x.last(b, n) + d, w) : x.first ? ldn(x.first(b, n) + d, w) : bc(0.f);
                a[n] = positive_nan(ldn(x.A(n) + d, w)) * LOG2E;
                if (x.starts) stn(x.starts(b, c, n) + d, h[n], w);
            }
            const vf skip = x.skip ? ldn(&x.skip[d], w) : bc(0.f);
            for (long t = 0; t < steps; t++) {
                const float *u = x.u(b, t0 + t) + d, *dt = x.dt(b, t0 + t) + d;
                __builtin_prefetch(u + VW), __builtin_prefetch(dt + VW);
                __builtin_prefetch(x.y(b, t0 + t) + d, 1);  // these two are wanted when the states are done
                if (x.z) __builtin_prefetch(x.z(b, t0 + t) + d);
                vf ut = ldn(u, w);
                delta[t] = vsoftplus(ldn(dt, w));
                xs[t] = delta[t] * ut;
                ys[t] = skip * ut;
            }
            all_states<false>(a, h, delta, xs, ys, steps, x.B, x.C, b, t0, nullptr, nullptr, N);
            for (long t = 0; t < steps; t++) {
                vf y = ys[t];
                if (x.z) {
                    vf zt = ldn(x.z(b, t0 + t) + d, w);
                    y *= zt * vsig(zt);
                }
                stn(x.y(b, t0 + t) + d, y, w);
            }
            for (long n = 0; n < N; n++) stn(x.last(b, n) + d, h[n], w);
        }
    }
    }
}

struct SelectiveScanBackward {
    Tensor<3> u, dt; Tensor<2> A; Tensor<3> B, C; Tensor<1> skip; Tensor<3> z; Tensor<4> starts;
    Tensor<3> grad_y, grad_last;
    Tensor<3> grad_u, grad_dt, grad_A; Tensor<4> grad_B, grad_C; Tensor<2> grad_skip; Tensor<3> grad_z, grad_first;
    long K, rows, T, D, N, chunks, pieces, threads;
};

// One block of states backwards over a chunk. g: the gradient of y before the gate; G [n, VW]: of h, carried.
template <int n>
INL void gradients(const vf* a, const vf* h0, const vf* kept, const vf* decays, const vf* delta, const vf* xs,
                   const vf* g, vf* G, vf* grad_a, vf* grad_x, vf* grad_delta, vf* grad_B, vf* grad_C, long steps,
                   const float* B, long next_B, const float* C, long next_C, long N) {
    vf carried[n], sum_a[n];
    for (int i = 0; i < n; i++) carried[i] = G[i], sum_a[i] = grad_a[i];
    for (long t = steps - 1; t >= 0; t--) {
        const vf gt = g[t], step = delta[t], input = xs[t];
        const vf *ht = kept + t * N, *e = decays + t * N, *before = t ? ht - N : h0;
        const float *Bt = B + t * next_B, *Ct = C + t * next_C;
        vf *gB = grad_B + t * N, *gC = grad_C + t * N, by_x = grad_x[t], by_delta = grad_delta[t];
        #pragma GCC unroll 16
        for (int i = 0; i < n; i++) {
            vf v = carried[i] + gt * Ct[i];
            gC[i] += gt * ht[i];
            by_x += v * Bt[i];
            gB[i] += v * input;
            v *= e[i];
            vf q = v * before[i];
            sum_a[i] += q * step;
            by_delta += q * a[i];
            carried[i] = v;
        }
        grad_x[t] = by_x, grad_delta[t] = by_delta;
    }
    for (int i = 0; i < n; i++) G[i] = carried[i], grad_a[i] = sum_a[i];
}

KERNEL(selective_scan_backward, SelectiveScanBackward) {
    const long N = x.N, K = x.K;
    const int threads = team(x.rows * x.T * x.D * N / VW, x.threads);
    #pragma omp parallel num_threads(threads)
    {
    std::vector<vf> space(4 * K * N + 5 * N + 8 * K);
    vf *kept = space.data(), *decays = kept + K * N, *sum_B = decays + K * N, *sum_C = sum_B + K * N;
    vf *a = sum_C + K * N, *h = a + N, *h0 = h + N, *G = h0 + N, *sum_a = G + N;
    vf *delta = sum_a + N, *xs = delta + K, *us = xs + K, *ys = us + K, *slope = ys + K, *g = slope + K;
    vf *by_x = g + K, *by_delta = by_x + K;
    #pragma omp for collapse(2) schedule(dynamic, 1)
    for (long b = 0; b < x.rows; b++) for (long s = 0; s < x.pieces; s++) for (long c = x.chunks - 1; c >= 0; c--) {
        const long t0 = c * K, steps = std::min(x.T - t0, K), nB = x.B.stride[1], nC = x.C.stride[1];
        const float *B = x.B(b, t0), *C = x.C(b, t0);
        const bool latest = c == x.chunks - 1;
        std::fill(sum_B, sum_B + 2 * K * N, bc(0.f));
        for (long d = begin_of(s, x.pieces, x.D); d < begin_of(s + 1, x.pieces, x.D); d += VW) {
            const long w = x.D - d;
            for (long n = 0; n < N; n++) {
                h[n] = h0[n] = ldn(x.starts(b, c, n) + d, w);
                a[n] = positive_nan(ldn(x.A(n) + d, w)) * LOG2E;
                G[n] = !latest ? ldn(x.grad_first(b, n) + d, w) : x.grad_last ? ldn(x.grad_last(b, n) + d, w) : bc(0.f);
                sum_a[n] = latest ? bc(0.f) : ldn(x.grad_A(b, n) + d, w);
            }
            const vf skip = x.skip ? ldn(&x.skip[d], w) : bc(0.f);
            for (long t = 0; t < steps; t++) {
                const float *u = x.u(b, t0 + t) + d, *dt = x.dt(b, t0 + t) + d;
                __builtin_prefetch(u + VW), __builtin_prefetch(dt + VW);
                vf ut = ldn(u, w), raw = ldn(dt, w);
                delta[t] = vsoftplus(raw);
                slope[t] = vsig(raw);
                us[t] = ut, xs[t] = delta[t] * ut, ys[t] = skip * ut;
                by_x[t] = by_delta[t] = bc(0.f);
            }
            all_states<true>(a, h, delta, xs, ys, steps, x.B, x.C, b, t0, kept, decays, N);
            for (long t = 0; t < steps; t++) {
                vf gt = x.grad_y ? ldn(x.grad_y(b, t0 + t) + d, w) : bc(0.f);
                if (x.z) {
                    vf z = ldn(x.z(b, t0 + t) + d, w), open = vsig(z);
                    stn(x.grad_z(b, t0 + t) + d, gt * ys[t] * open * (1.f + z * (1.f - open)), w);
                    gt *= z * open;
                }
                g[t] = gt;
            }
            long i = 0;
            auto block = [&](auto n) {
                for (; i + n <= N; i += n)
                    gradients<n>(a + i, h0 + i, kept + i, decays + i, delta, xs, g, G + i, sum_a + i, by_x, by_delta,
                                 sum_B + i, sum_C + i, steps, B + i, nB, C + i, nC, N);
            };
            block(Count<BLOCK>{}), block(Count<1>{});
            vf by_skip = latest || !x.skip ? bc(0.f) : ldn(x.grad_skip(b) + d, w);
            for (long t = 0; t < steps; t++) {
                stn(x.grad_u(b, t0 + t) + d, by_x[t] * delta[t] + g[t] * skip, w);
                stn(x.grad_dt(b, t0 + t) + d, (by_x[t] * us[t] + by_delta[t] * LN2) * slope[t], w);
                by_skip += g[t] * us[t];
            }
            if (x.skip) stn(x.grad_skip(b) + d, by_skip, w);
            for (long n = 0; n < N; n++) {
                stn(x.grad_first(b, n) + d, G[n], w);
                stn(x.grad_A(b, n) + d, sum_a[n], w);
            }
        }
        for (long t = 0; t < steps; t++) for (long n = 0; n < N; n++) {
            x.grad_B(s, b, t0 + t)[n] = hsum(sum_B[t * N + n]);
            x.grad_C(s, b, t0 + t)[n] = hsum(sum_C[t * N + n]);
        }
    }
    }
}
