// The cross-entropy of logits and its gradient: a row stays in the cache from its maximum to its gradient.
#include "vec.h"
#include <cmath>

struct LogitGradient {
    Tensor<2> logits; Tensor<1, const int64_t> target; double weight, others;
    Tensor<1> losses; Tensor<2> gradient;
    long N, P, threads;
};

// A class weighs `others` in the target distribution, the true one `weight` more; a negative target does not count.
KERNEL(logit_gradient, LogitGradient) {
    const int team_size = team(x.N * x.P / VW * 4, x.threads);
    const float others = (float)x.others;
    #pragma omp parallel for schedule(static) num_threads(team_size)
    for (long i = 0; i < x.N; i++) {
        const float* logits = x.logits(i);
        float* gradient = x.gradient(i);
        if (x.target[i] < 0) {
            std::fill(gradient, gradient + x.P, 0.f);
            x.losses[i] = 0;
            continue;
        }
        vf highest = bc(-__builtin_inff());
        long p = 0;
        for (; p + VW <= x.P; p += VW) highest = vmax(highest, ld(logits + p));
        float top = -__builtin_inff();
        for (int lane = 0; lane < VW; lane++) top = std::max(top, highest[lane]);
        for (long j = p; j < x.P; j++) top = std::max(top, logits[j]);
        vf sum[2] = {bc(0.f), bc(0.f)}, plain[2] = {bc(0.f), bc(0.f)};
        for (long j = 0; j < x.P; j += VW) {
            const vf l = ldn(logits + j, x.P - j), e = vexp2n((l - top) * LOG2E);
            stn(gradient + j, e, x.P - j);
            sum[j / VW % 2] += j + VW <= x.P ? e : ldn(gradient + j, x.P - j);
            plain[j / VW % 2] += l;
        }
        const float total = hsum(sum[0] + sum[1]), over = 1 / total, log_sum = top + std::log(total);
        for (long j = 0; j < x.P; j += VW) stn(gradient + j, ldn(gradient + j, x.P - j) * over - others, x.P - j);
        gradient[x.target[i]] -= (float)x.weight;
        x.losses[i] = (float)x.weight * (log_sum - logits[x.target[i]]);
        if (others) x.losses[i] += others * (x.P * log_sum - hsum(plain[0] + plain[1]));
    }
}
