// RWKV's WKV. Rows are walked as they lie in memory; sums are kept in units of e^m, so that keys may have any size. The
// backward pass goes by chunks in reverse, from the sums kept at their starts, and carries the gradients of A and B in
// units of e^p. Every exponent is at most 0, since m never falls below what it has seen.
#include "vec.h"

static const long K = 32;  // steps of a chunk

// Two terms brought to the larger of their exponents p and q: what each is to be multiplied with.
INL void align(vf p, vf q, vf& by_p, vf& by_q) {
    vf gap = p - q, e = vexp2_least(vabs(gap) * -LOG2E);
    by_p = gap > 0.f ? bc(1.f) : e;
    by_q = gap > 0.f ? e : bc(1.f);
}
INL void add(vf& A, vf& B, vf& m, vf w, vf k, vf v) {
    vf decayed = m + w, old, now;
    align(decayed, k, old, now);
    A = old * A + now * v, B = old * B + now, m = vmax(decayed, k);
}

INL long padded(long n) { return (n + VW - 1) / VW * VW; }

struct Wkv {
    Tensor<3> k, v; Tensor<1> log_decay, bonus; Tensor<2> first_A, first_B, first_m; Tensor<1, int64_t> lengths;
    Tensor<3> y; Tensor<2> A, B, m; Tensor<4> starts;
    long rows, T, D, chunks, threads;
};

// A chunk of channels d0..d1, whose sums A, B in units of e^m are replaced.
INL void any_chunk(const Wkv& x, long b, long t0, long t1, long d0, long d1) {
    float *A = x.A(b), *B = x.B(b), *m = x.m(b);
    for (long t = t0; t < t1; t++) {
        const float *kt = x.k(b, t), *vt = x.v(b, t);
        float* y = x.y(b, t);
        vectors(d0, d1, [&](long d, auto lanes) {
            const vf k = lanes.ld(kt + d), v = lanes.ld(vt + d);
            vf a = lanes.ld(A + d), c = lanes.ld(B + d), p = lanes.ld(m + d), old, now;
            align(p, k + lanes.ld(&x.bonus[d]), old, now);
            lanes.st(y + d, (old * a + now * v) / (old * c + now));
            add(a, c, p, lanes.ld(&x.log_decay[d]), k, v);
            lanes.st(A + d, a), lanes.st(B + d, c), lanes.st(m + d, p);
        });
    }
}

// Where the keys of a chunk lie close together, all of it may be in units of e^M, with M the largest exponent: that is
// one exponential a step and no comparison. False, and nothing done, where they do not. `room`: 5 numbers a channel.
INL bool close_chunk(const Wkv& x, long b, long t0, long t1, long d0, long d1, float* room) {
    const long n = padded(d1 - d0);
    float *A = x.A(b), *B = x.B(b), *M = room - d0, *least = M + n, *m = least + n, *decay = m + n, *gain = decay + n;
    vectors(d0, d1, [&](long d, auto lanes) {
        const vf first = lanes.ld(x.m(b) + d);
        st(M + d, first), st(m + d, first), st(least + d, bc(1e30f));
    });
    for (long t = t0; t < t1; t++) {
        const float *kt = x.k(b, t), *vt = x.v(b, t);
        vectors(d0, d1, [&](long d, auto lanes) {
            const vf k = lanes.ld(kt + d);
            __builtin_prefetch(vt + d);
            st(M + d, vmax(k, ld(M + d))), st(least + d, vmin(k, ld(least + d)));
            st(m + d, vmax(ld(m + d) + lanes.ld(&x.log_decay[d]), k));
        });
    }
    vi far = {};
    vectors(d0, d1, [&](long d, auto lanes) {
        const vf w = lanes.ld(&x.log_decay[d]), u = lanes.ld(&x.bonus[d]);
        const vi close = (ld(M + d) - ld(least + d) < 40.f) & (vabs(u) < 20.f) & (w < 1.f);
        if (lanes.whole) far |= ~close;
        else for (long i = 0; i < d1 - d; i++) far[i] |= ~close[i];
    });
    for (int i = 0; i < VW; i++) if (far[i]) return false;
    vectors(d0, d1, [&](long d, auto lanes) {
        const vf top = ld(M + d), scale = vexp2n((lanes.ld(x.m(b) + d) - top) * LOG2E);
        lanes.st(A + d, lanes.ld(A + d) * scale), lanes.st(B + d, lanes.ld(B + d) * scale);
        st(decay + d, vexp(lanes.ld(&x.log_decay[d]))), st(gain + d, vexp(lanes.ld(&x.bonus[d])));
    });
    for (long t = t0; t < t1; t++) {
        const float *kt = x.k(b, t), *vt = x.v(b, t);
        float* y = x.y(b, t);
        vectors(d0, d1, [&](long d, auto lanes) {
            const vf e = vexp2_inside((lanes.ld(kt + d) - ld(M + d)) * LOG2E), ev = e * lanes.ld(vt + d);
            const vf a = lanes.ld(A + d), c = lanes.ld(B + d), w = ld(decay + d), u = ld(gain + d);
            lanes.st(y + d, (a + u * ev) / (c + u * e));
            lanes.st(A + d, w * a + ev), lanes.st(B + d, w * c + e);
        });
    }
    vectors(d0, d1, [&](long d, auto lanes) {
        const vf last = ld(m + d), scale = vexp(ld(M + d) - last);
        lanes.st(A + d, lanes.ld(A + d) * scale), lanes.st(B + d, lanes.ld(B + d) * scale);
        lanes.st(x.m(b) + d, last);
    });
    return true;
}

KERNEL(wkv, Wkv) {
    const long per = pieces(x.rows, x.D, x.threads), team_size = team(x.rows * x.T * x.D / VW * 4, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.rows; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), d1 = begin_of(s + 1, per, x.D), T = x.lengths ? x.lengths[b] : x.T;
        std::vector<float> room(5 * padded(d1 - d0));
        float* sums[] = {x.A(b), x.B(b), x.m(b)};
        for (long d = d0; d < d1; d++) {
            sums[0][d] = x.first_A ? x.first_A(b)[d] : 0.f, sums[1][d] = x.first_B ? x.first_B(b)[d] : 0.f;
            sums[2][d] = x.first_m ? x.first_m(b)[d] : -__builtin_inff();
        }
        for (long t = 0; t < T; t += K) {
            for (int i = 0; x.starts && i < 3; i++) std::copy(sums[i] + d0, sums[i] + d1, x.starts(b, t / K, i) + d0);
            const long end = std::min(T, t + K);
            if (end - t < 4 || !close_chunk(x, b, t, end, d0, d1, room.data())) any_chunk(x, b, t, end, d0, d1);
        }
        for (long t = T; t < x.T; t++) std::fill(x.y(b, t) + d0, x.y(b, t) + d1, 0.f);
    }
}

struct WkvBackward {
    Tensor<3> k, v; Tensor<1> log_decay, bonus; Tensor<1, int64_t> lengths; Tensor<4> starts; Tensor<2> last_m;
    Tensor<3> grad_y; Tensor<2> grad_A, grad_B, grad_m;
    Tensor<3> grad_k, grad_v; Tensor<2> grad_decay, grad_bonus, grad_first_A, grad_first_B, grad_first_m;
    long rows, T, D, chunks, threads;
};

KERNEL(wkv_backward, WkvBackward) {
    const long per = pieces(x.rows, x.D, x.threads), team_size = team(x.rows * x.T * x.D / VW * 8, x.threads);
    #pragma omp parallel for collapse(2) schedule(static, 1) num_threads(team_size)
    for (long b = 0; b < x.rows; b++) for (long s = 0; s < per; s++) {
        const long d0 = begin_of(s, per, x.D), d1 = begin_of(s + 1, per, x.D), width = (d1 - d0 + VW - 1) / VW;
        const long T = x.lengths ? x.lengths[b] : x.T;
        struct Carried { vf A, B, p, decay, bonus; };
        struct Sums { vf A, B, m; };
        std::vector<Carried> carried(width);
        std::vector<Sums> now(width), before(K * width);
        vectors(d0, d1, [&](long d, auto lanes) {
            const long i = (d - d0) / VW;
            vf none = {};
            carried[i] = {x.grad_A ? lanes.ld(x.grad_A(b) + d) : none, x.grad_B ? lanes.ld(x.grad_B(b) + d) : none,
                          -lanes.ld(x.last_m(b) + d), none, none};
        });
        for (long c = (T + K - 1) / K - 1; c >= 0; c--) {
            const long t0 = c * K, steps = std::min(T - t0, K);
            const float* start = x.starts(b, c, 0);
            vectors(d0, d1, [&](long d, auto lanes) {
                const long i = (d - d0) / VW;
                now[i] = {lanes.ld(start + d), lanes.ld(start + x.D + d), lanes.ld(start + 2 * x.D + d)};
            });
            for (long t = 0; t < steps; t++) vectors(d0, d1, [&](long d, auto lanes) {
                const long i = (d - d0) / VW;
                Sums& at = now[i];
                before[t * width + i] = at;
                const vf k = lanes.ld(x.k(b, t0 + t) + d), v = lanes.ld(x.v(b, t0 + t) + d);
                add(at.A, at.B, at.m, lanes.ld(&x.log_decay[d]), k, v);
            });
            for (long t = steps - 1; t >= 0; t--) vectors(d0, d1, [&](long d, auto lanes) {
                const long i = (d - d0) / VW;
                const Sums at = before[t * width + i];
                Carried g = carried[i];
                const vf k = lanes.ld(x.k(b, t0 + t) + d), v = lanes.ld(x.v(b, t0 + t) + d);
                const vf w = lanes.ld(&x.log_decay[d]);
                const vf grad = x.grad_y ? lanes.ld(x.grad_y(b, t0 + t) + d) : bc(0.f), new_k = k + lanes.ld(&x.bonus[d]);
                vf old, fresh, by_p, by_m;
                align(at.m, new_k, old, fresh);
                const vf inverse = 1.f / (old * at.B + fresh), y = (old * at.A + fresh * v) * inverse;
                const vf above = grad * inverse, below = -above * y;  // by numerator, denominator
                const vf through_bonus = fresh * (above * v + below);
                const vf written = vexp2_least((g.p + k) * LOG2E), kept = vexp2_least((g.p + (at.m + w)) * LOG2E);
                lanes.st(x.grad_v(b, t0 + t) + d, fresh * above + written * g.A);
                lanes.st(x.grad_k(b, t0 + t) + d, through_bonus + written * (g.A * v + g.B));
                g.bonus += through_bonus;
                g.decay += kept * (g.A * at.A + g.B * at.B);
                const vf decayed = g.p + w, unit = -vmax(at.m, new_k);
                align(decayed, unit, by_p, by_m);
                g.A = by_p * g.A + by_m * above, g.B = by_p * g.B + by_m * below, g.p = vmax(decayed, unit);
                carried[i] = g;
            });
        }
        vectors(d0, d1, [&](long d, auto lanes) {
            const long i = (d - d0) / VW;
            Carried g = carried[i];
            vf A = g.A, B = g.B, m = x.grad_m ? lanes.ld(x.grad_m(b) + d) : bc(0.f);  // a row without tokens
            if (T) {
                const float* start = x.starts(b, 0, 0);
                const vf scale = vexp2n((g.p + lanes.ld(start + 2 * x.D + d)) * LOG2E);
                A *= scale, B *= scale, m = A * lanes.ld(start + d) + B * lanes.ld(start + x.D + d);
            }
            lanes.st(x.grad_first_A(b) + d, A), lanes.st(x.grad_first_B(b) + d, B), lanes.st(x.grad_first_m(b) + d, m);
            lanes.st(x.grad_decay(b) + d, g.decay), lanes.st(x.grad_bonus(b) + d, g.bonus);
        });
        for (long t = T; t < x.T; t++) {
            std::fill(x.grad_k(b, t) + d0, x.grad_k(b, t) + d1, 0.f);
            std::fill(x.grad_v(b, t) + d0, x.grad_v(b, t) + d1, 0.f);
        }
    }
}
