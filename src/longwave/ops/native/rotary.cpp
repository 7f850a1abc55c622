// Rotary positions: a token's sines serve all its heads, and those of the next token follow by one more turn.
#include "vec.h"
#include <cmath>

struct Rotary {
    Tensor<4> u; Tensor<2, const int64_t> pos; Tensor<1, const double> rates; double gain; long back;
    Tensor<4> y;
    long B, T, H, K, pos_rows, n, threads;
};

namespace {

constexpr long BLOCK = 64;  // steps from one sine to the next: what rounding adds in between stays far below float's

struct Turn {
    std::vector<double> c, s, step_c, step_s;
    std::vector<float> cos, sin;
    long at = 0, left = 0;

    explicit Turn(const Rotary& x) : c(x.n), s(x.n), step_c(x.n), step_s(x.n), cos(x.n), sin(x.n) {
        for (long i = 0; i < x.n; i++) step_c[i] = std::cos(x.rates[i]), step_s[i] = std::sin(x.rates[i]);
    }

    void to(const Rotary& x, long pos) {
        if (pos == at + 1 && left > 0) {
            for (long i = 0; i < x.n; i++) {
                const double was = c[i];
                c[i] = was * step_c[i] - s[i] * step_s[i], s[i] = was * step_s[i] + s[i] * step_c[i];
            }
            left--;
        } else if (pos != at || left == 0) {
            for (long i = 0; i < x.n; i++) c[i] = std::cos(pos * x.rates[i]), s[i] = std::sin(pos * x.rates[i]);
            left = BLOCK;
        }
        at = pos;
        const double gain = x.gain, other = x.back ? -gain : gain;
        for (long i = 0; i < x.n; i++) cos[i] = (float)(gain * c[i]), sin[i] = (float)(other * s[i]);
    }
};

}  // namespace

KERNEL(rotary, Rotary) {
    const long blocks = (x.T + BLOCK - 1) / BLOCK;
    const int team_size = team(x.B * x.T * (x.H * x.K + 8 * x.n) / VW, x.threads);
    #pragma omp parallel num_threads(team_size)
    {
        Turn turn(x);
        #pragma omp for collapse(2) schedule(static)
        for (long b = 0; b < x.B; b++) for (long block = 0; block < blocks; block++) {
            turn.left = 0;
            for (long t = block * BLOCK; t < std::min(x.T, (block + 1) * BLOCK); t++) {
                turn.to(x, x.pos(x.pos_rows == 1 ? 0 : b)[t]);
                const float *c = turn.cos.data(), *s = turn.sin.data();
                for (long h = 0; h < x.H; h++) {
                    const float* from = x.u(b, t, h);
                    float* to = x.y(b, t, h);
                    #pragma omp simd
                    for (long i = 0; i < x.n; i++) {
                        to[i] = from[i] * c[i] - from[x.n + i] * s[i];
                        to[x.n + i] = from[x.n + i] * c[i] + from[i] * s[i];
                    }
                    memcpy(to + 2 * x.n, from + 2 * x.n, (x.K - 2 * x.n) * sizeof(float));
                }
            }
        }
    }
}
