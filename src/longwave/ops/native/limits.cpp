// What this machine does at most, for benchmarks: multiply-adds and exponentials that stay in registers. Every thread
// does `steps` rounds; the number of operations of a round and thread comes back in out[0].
#include "vec.h"

#ifdef __aarch64__
#define KEEP(v) asm volatile("" : "+w"(v))  // computed here, neither merged nor moved
#else
#define KEEP(v) asm volatile("" : "+x"(v))
#endif

struct Limit {
    Tensor<1> out;
    long steps, N, threads;
};

KERNEL(fma_limit, Limit) {
    constexpr int CHAINS = 12;  // latency 4 on 2 ports, and some
    #pragma omp parallel num_threads(x.threads)
    {
        vf a[CHAINS], k = bc(0.999f);
        #pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) a[i] = bc(1.f + i);
        for (long s = 0; s < x.steps; s++)
            #pragma GCC unroll 12
            for (int i = 0; i < CHAINS; i++) {
                a[i] = a[i] * k + k;
                KEEP(a[i]);
            }
        vf sum = a[0];
        #pragma GCC unroll 12
        for (int i = 1; i < CHAINS; i++) sum += a[i];
        #pragma omp critical
        x.out[1] += hsum(sum);
    }
    x.out[0] = 2.f * CHAINS * VW;
}

KERNEL(exp_limit, Limit) {
    constexpr int NUMBERS = 8;
    #pragma omp parallel num_threads(x.threads)
    {
        vf a[NUMBERS];
        #pragma GCC unroll 8
        for (int i = 0; i < NUMBERS; i++) a[i] = bc(-0.01f * (i + 1));
        for (long s = 0; s < x.steps; s++)
            #pragma GCC unroll 8
            for (int i = 0; i < NUMBERS; i++) {
                vf y = vexp2n(a[i]);
                KEEP(y);
                KEEP(a[i]);
            }
        #pragma omp critical
        x.out[1] += hsum(a[0]);
    }
    x.out[0] = 1.f * NUMBERS * VW;
}
