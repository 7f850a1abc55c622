// Depthwise causal convolution with few taps and an activation: blocks of time, and of channels, that stay in L1.
#include "vec.h"

struct ShortConv {
    Tensor<3> u; Tensor<2> weight; Tensor<1> bias; Tensor<3> window; long silu;
    Tensor<3> y;
    long B, T, D, W, M, threads;
};

struct ShortConvBackward {
    Tensor<3> u; Tensor<2> weight; Tensor<1> bias; Tensor<3> window; long silu;
    Tensor<3> dy, du, dwindow, dweight; Tensor<2> dbias;  // dweight, dbias: one a task, to be added up
    long B, T, D, W, M, P, threads;
};

namespace {

constexpr long TIME = 64, CHANNELS = 256;
const float ZEROS[CHANNELS] = {};

// What output t looks at, from channel d0 on: inputs t - W + 1 .. t, the window's where t is early, zeros before that.
template <class X> INL void inputs(const X& x, long b, long t, long d0, const float** rows) {
    for (long w = 0; w < x.W; w++) {
        const long at = t - x.W + 1 + w;
        rows[w] = at >= 0 ? x.u(b, at) + d0 : x.window ? x.window(b, x.M + at) + d0 : ZEROS;
    }
}

// f(channel, lanes) for all vectors of n channels
template <class F> INL void for_vectors(long n, F f) {
    long d = 0;
    for (; d + VW <= n; d += VW) f(d, (long)VW);
    if (d < n) f(d, n - d);
}

// N: the number of taps, 0: any
template <int N, class X> INL vf taps(const X& x, const float* const* rows, long d0, long d, long lanes) {
    vf s = x.bias ? ldn(x.bias.p + d0 + d, lanes) : bc(0.f);
    for (long w = 0; w < (N ? N : x.W); w++) s += ldn(x.weight(w) + d0 + d, lanes) * ldn(rows[w] + d, lanes);
    return s;
}

template <int N, bool silu> void forward(const ShortConv& x, long b, long t0, long t1, long d0, long n) {
    std::vector<const float*> rows(x.W);
    for (long t = t0; t < t1; t++) {
        inputs(x, b, t, d0, rows.data());
        float* y = x.y(b, t) + d0;
        for_vectors(n, [&](long d, long lanes) {
            const vf s = taps<N>(x, rows.data(), d0, d, lanes);
            stn(y + d, silu ? s * vsig(s) : s, lanes);
        });
    }
}

// The gradients of u for t0 .. t1 - 1, and what these outputs add to the weights'.
template <int N, bool silu>
void backward(const ShortConvBackward& x, long task, long b, long t0, long t1, long d0, long n, float* q) {
    const long W = N ? N : x.W, M = W - 1, until = std::min(x.T, t1 + M);
    std::vector<const float*> rows(W);
    for (long t = t0; t < until; t++) {  // q: gradients before the activation, from t0 on
        inputs(x, b, t, d0, rows.data());
        const float* dy = x.dy(b, t) + d0;
        float* to = q + (t - t0) * CHANNELS;
        for_vectors(n, [&](long d, long lanes) {
            vf g = ldn(dy + d, lanes);
            if (silu) {
                const vf s = taps<N>(x, rows.data(), d0, d, lanes), e = vsig(s);
                g *= e * (1.f + s * (1.f - e));
            }
            st(to + d, g);
        });
    }
    for_vectors(n, [&](long d, long lanes) {
        vf sum = bc(0.f);
        for (long t = t0; t < t1; t++) sum += ld(q + (t - t0) * CHANNELS + d);
        if (x.dbias) stn(x.dbias(task) + d0 + d, ldn(x.dbias(task) + d0 + d, lanes) + sum, lanes);
        for (long w = 0; w < W; w++) {
            sum = bc(0.f);
            for (long t = t0; t < t1; t++) {
                const long at = t - M + w;
                const float* row = at >= 0 ? x.u(b, at) + d0 : x.window ? x.window(b, at + M) + d0 : ZEROS;
                sum += ld(q + (t - t0) * CHANNELS + d) * ldn(row + d, lanes);
            }
            float* to = x.dweight(task, w) + d0 + d;
            stn(to, ldn(to, lanes) + sum, lanes);
        }
    });
    for (long t = t0 ? t0 : -M; t < t1; t++) {
        float* to = t >= 0 ? x.du(b, t) : x.dwindow ? x.dwindow(b, M + t) : nullptr;
        const long first = std::max(0L, t + M + 1 - until), last = std::min(M, t + M - t0);  // taps with an output here
        if (to) for_vectors(n, [&](long d, long lanes) {
            vf sum = bc(0.f);
            for (long w = first; w <= last; w++)
                sum += ldn(x.weight(w) + d0 + d, lanes) * ld(q + (t + M - w - t0) * CHANNELS + d);
            stn(to + d0 + d, sum, lanes);
        });
    }
}

}  // namespace

KERNEL(short_conv, ShortConv) {
    const int team_size = team(x.B * x.T * x.D / VW * x.W, x.threads);
    #pragma omp parallel for collapse(3) schedule(static) num_threads(team_size)
    for (long b = 0; b < x.B; b++) for (long t0 = 0; t0 < x.T; t0 += TIME) for (long d0 = 0; d0 < x.D; d0 += CHANNELS) {
        const long t1 = std::min(x.T, t0 + TIME), d1 = std::min(x.D, d0 + CHANNELS);
        const auto run = x.W == 4 ? (x.silu ? forward<4, true> : forward<4, false>)
                                  : (x.silu ? forward<0, true> : forward<0, false>);
        run(x, b, t0, t1, d0, d1 - d0);
    }
}

KERNEL(short_conv_backward, ShortConvBackward) {
    const long blocks = (x.T + TIME - 1) / TIME, per = x.P / x.B;  // P: tasks, the same number a row
    const int team_size = team(x.B * x.T * x.D / VW * x.W * 3, x.threads);
    #pragma omp parallel for schedule(static) num_threads(team_size)
    for (long task = 0; task < x.P; task++) {
        std::vector<float> q((TIME + x.W) * CHANNELS);
        const long b = task / per, part = task % per;
        for (long block = blocks * part / per; block < blocks * (part + 1) / per; block++)
            for (long d0 = 0; d0 < x.D; d0 += CHANNELS) {
                const long t0 = block * TIME, t1 = std::min(x.T, t0 + TIME), d1 = std::min(x.D, d0 + CHANNELS);
                const auto run = x.W == 4 ? (x.silu ? backward<4, true> : backward<4, false>)
                                          : (x.silu ? backward<0, true> : backward<0, false>);
                run(x, task, b, t0, t1, d0, d1 - d0, q.data());
            }
    }
}
