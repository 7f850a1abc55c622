// RMSNorm and LayerNorm of x + residual: each token is read once from memory, and once more from the cache.
#include "vec.h"
#include <cmath>

struct Norm {
    Tensor<2> u, residual; Tensor<1> weight, bias; double eps; long centre;
    Tensor<2> sum, y; Tensor<1> mean, scale;  // sum: x + residual, where there is one
    long N, D, threads;
};

struct NormBackward {
    Tensor<2> s; Tensor<1> weight, mean, scale; Tensor<2> dy, dsum; long centre;
    Tensor<2> ds, dweight, dbias;  // the last two: one a task, to be added up
    long N, D, P, threads;
};

namespace {

// f(channel, lanes) for all vectors of n channels
template <class F> INL void for_vectors(long n, F f) {
    long d = 0;
    for (; d + VW <= n; d += VW) f(d, (long)VW);
    if (d < n) f(d, n - d);
}

INL vf only(vf v, long lanes) {  // zeros behind the last lane
    float x[VW];
    if (lanes >= VW) return v;
    memcpy(x, &v, sizeof x);
    return ldn(x, lanes);
}

}  // namespace

KERNEL(norm, Norm) {
    const int team_size = team(x.N * x.D / VW * 3, x.threads);
    #pragma omp parallel for schedule(static) num_threads(team_size)
    for (long i = 0; i < x.N; i++) {
        const float* s = x.u(i);
        vf total = bc(0.f), squares = bc(0.f);
        if (x.residual) {
            for_vectors(x.D, [&](long d, long lanes) { stn(x.sum(i) + d, ldn(x.u(i) + d, lanes) + ldn(x.residual(i) + d, lanes), lanes); });
            s = x.sum(i);
        }
        if (x.centre) for_vectors(x.D, [&](long d, long lanes) { total += ldn(s + d, lanes); });
        const float mean = x.centre ? hsum(total) / x.D : 0;
        for_vectors(x.D, [&](long d, long lanes) {
            const vf c = only(ldn(s + d, lanes) - mean, lanes);
            squares += c * c;
        });
        const float scale = 1 / std::sqrt(hsum(squares) / x.D + (float)x.eps);
        x.mean[i] = mean, x.scale[i] = scale;
        for_vectors(x.D, [&](long d, long lanes) {
            const vf y = (ldn(s + d, lanes) - mean) * scale * ldn(x.weight.p + d, lanes);
            stn(x.y(i) + d, x.bias ? y + ldn(x.bias.p + d, lanes) : y, lanes);
        });
    }
}

// With n = (s - mean) scale and g = weight dy: ds = scale (g - mean(g) - n mean(g n)), the middle term for LayerNorm.
KERNEL(norm_backward, NormBackward) {
    const int team_size = team(x.N * x.D / VW * 6, x.threads);
    #pragma omp parallel for schedule(static) num_threads(team_size)
    for (long p = 0; p < x.P; p++) for (long i = x.N * p / x.P; i < x.N * (p + 1) / x.P; i++) {
        const float *s = x.s(i), *dy = x.dy(i), mean = x.mean[i], scale = x.scale[i];
        vf plain = bc(0.f), along = bc(0.f);
        for_vectors(x.D, [&](long d, long lanes) {
            const vf g = ldn(dy + d, lanes) * ldn(x.weight.p + d, lanes), n = (ldn(s + d, lanes) - mean) * scale;
            plain += g, along += g * n;
        });
        const float g_mean = x.centre ? hsum(plain) / x.D : 0, gn_mean = hsum(along) / x.D;
        for_vectors(x.D, [&](long d, long lanes) {
            const vf e = ldn(dy + d, lanes), g = e * ldn(x.weight.p + d, lanes), n = (ldn(s + d, lanes) - mean) * scale;
            const vf ds = (g - g_mean - n * gn_mean) * scale;
            stn(x.ds(i) + d, x.dsum ? ds + ldn(x.dsum(i) + d, lanes) : ds, lanes);
            stn(x.dweight(p) + d, ldn(x.dweight(p) + d, lanes) + e * n, lanes);
            if (x.dbias) stn(x.dbias(p) + d, ldn(x.dbias(p) + d, lanes) + e, lanes);
        });
    }
}
