// GELU before a product and GLU behind it, reading and writing the product's own precision: float, or bfloat16 halves.
#include "vec.h"

template <class Number> struct Gelu { Tensor<2> x; Tensor<2, Number> y; long N, D, threads; };
template <class Number> struct GeluBackward { Tensor<2> x; Tensor<2, Number> dy; Tensor<2> dx; long N, D, threads; };
template <class Number> struct Glu { Tensor<2, Number> h; Tensor<1> bias; Tensor<2> y; long N, E, D, threads; };
template <class Number> struct GluBackward {
    Tensor<2, Number> h; Tensor<1> bias; Tensor<2> dy; Tensor<2, Number> dh; Tensor<2> dbias;  // of dbias one row a task, to be added up
    long N, E, D, P, threads;
};

namespace {

typedef uint16_t half;
typedef uint16_t vh __attribute__((vector_size(VW * 2)));

template <class L> INL vf get(const L& lanes, const float* p) { return lanes.ld(p); }
template <class L> INL vf get(const L& lanes, const half* p) {
    vh bits = {};
    memcpy(&bits, p, std::min(lanes.n, (long)VW) * 2);
    return (vf)(__builtin_convertvector(bits, vu) << 16);
}
template <class L> INL void put(const L& lanes, float* p, vf v) { lanes.st(p, v); }
template <class L> INL void put(const L& lanes, half* p, vf v) {  // to the nearest, ties to even
    const vu bits = (vu)v, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const vh y = __builtin_convertvector(v == v ? rounded : (vu){} + 0x7fc0, vh);
    memcpy(p, &y, std::min(lanes.n, (long)VW) * 2);
}

// The normal distribution function and its density times sqrt(2 pi). Abramowitz and Stegun 7.1.26, within 1.5e-7.
INL vf normal(vf x, vf& density) {
    const vf t = 1.f / (1.f + 0.23164190f * vabs(x));
    density = vexp2n(x * x * (-0.5f * LOG2E));
    vf p = 1.06140543f * t - 1.45315203f;
    p = p * t + 1.42141374f; p = p * t - 0.28449674f; p = p * t + 0.25482959f;
    const vf tail = 0.5f * p * t * density;
    return x < 0.f ? tail : 1.f - tail;
}

template <class X> void gelu_forward(const X& x) {
    #pragma omp parallel for schedule(static) num_threads(team(x.N * x.D / VW * 4, x.threads))
    for (long i = 0; i < x.N; i++)
        vectors(0, x.D, [&](long d, auto lanes) {
            vf density;
            const vf u = lanes.ld(x.x(i) + d);
            put(lanes, x.y(i) + d, u * normal(u, density));
        });
}

template <class X> void gelu_backward_(const X& x) {
    #pragma omp parallel for schedule(static) num_threads(team(x.N * x.D / VW * 4, x.threads))
    for (long i = 0; i < x.N; i++)
        vectors(0, x.D, [&](long d, auto lanes) {
            vf density;
            const vf u = lanes.ld(x.x(i) + d), below = normal(u, density);
            lanes.st(x.dx(i) + d, get(lanes, x.dy(i) + d) * (below + u * density * 0.39894228f));
        });
}

template <class X> void glu_forward(const X& x) {
    #pragma omp parallel for schedule(static) num_threads(team(x.N * x.D / VW * 4, x.threads))
    for (long i = 0; i < x.N; i++)
        vectors(0, x.D, [&](long d, auto lanes) {
            const vf a = get(lanes, x.h(i) + d) + lanes.ld(x.bias.p + d);
            lanes.st(x.y(i) + d, a * vsig(get(lanes, x.h(i) + x.D + d) + lanes.ld(x.bias.p + x.D + d)));
        });
}

template <class X> void glu_backward_(const X& x) {
    #pragma omp parallel for schedule(static) num_threads((int)x.P)
    for (long task = 0; task < x.P; task++)
        for (long i = x.N * task / x.P; i < x.N * (task + 1) / x.P; i++)
            vectors(0, x.D, [&](long d, auto lanes) {
                const vf gate = vsig(get(lanes, x.h(i) + x.D + d) + lanes.ld(x.bias.p + x.D + d));
                const vf da = lanes.ld(x.dy(i) + d) * gate;
                const vf dg = da * (get(lanes, x.h(i) + d) + lanes.ld(x.bias.p + d)) * (1.f - gate);
                put(lanes, x.dh(i) + d, da);
                put(lanes, x.dh(i) + x.D + d, dg);
                float* sum = x.dbias(task) + d;
                lanes.st(sum, lanes.ld(sum) + da);
                lanes.st(sum + x.D, lanes.ld(sum + x.D) + dg);
            });
}

}  // namespace

KERNEL(gelu, Gelu<float>) { gelu_forward(x); }
KERNEL(gelu_half, Gelu<half>) { gelu_forward(x); }
KERNEL(gelu_backward, GeluBackward<float>) { gelu_backward_(x); }
KERNEL(gelu_backward_half, GeluBackward<half>) { gelu_backward_(x); }
KERNEL(glu, Glu<float>) { glu_forward(x); }
KERNEL(glu_half, Glu<half>) { glu_forward(x); }
KERNEL(glu_backward, GluBackward<float>) { glu_backward_(x); }
KERNEL(glu_backward_half, GluBackward<half>) { glu_backward_(x); }
