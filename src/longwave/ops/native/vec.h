// Vector maths for the kernels: GCC/Clang vector extensions, no intrinsics. VW lanes of float: 16, 8 or 4.
//
// NaN: `x > y ? x : y` is y where either is NaN, so the operand that may be NaN stands second. All functions here
// give NaN for NaN; the build never promises the compiler finite numbers.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>
#ifdef _OPENMP
#include <omp.h>
#endif

#define INL static inline __attribute__((always_inline))
#define API extern "C" __attribute__((visibility("default")))
// A kernel called `name` gets one struct; bind.py writes it, and asks for its size to be sure of the layout.
#define KERNEL(name, Arguments) \
    API long name##_words() { return sizeof(Arguments) / 8; } \
    API void name(const Arguments& x)

typedef float vf __attribute__((vector_size(VW * 4)));
typedef int32_t vi __attribute__((vector_size(VW * 4)));
typedef uint32_t vu __attribute__((vector_size(VW * 4)));

// A tensor of n axes: a pointer (null where the caller gave None) and the strides of all axes but the last, whose
// stride is 1. x.a(b, t) is the row of batch row b at time t.
template <int axes, class Number = float> struct Tensor {
    Number* p;
    long stride[axes - 1];
    template <class... I> Number* operator()(I... index) const {
        static_assert(sizeof...(I) == axes - 1);
        Number* at = p;
        int axis = 0;
        ((at += index * stride[axis++]), ...);
        return at;
    }
    explicit operator bool() const { return p; }
};
template <class Number> struct Tensor<1, Number> {
    Number* p;
    Number& operator[](long i) const { return p[i]; }
    explicit operator bool() const { return p; }
};

template <int n> using Count = std::integral_constant<int, n>;  // a number that a lambda takes as a constant

INL vf ld(const float* p) { vf v; memcpy(&v, p, sizeof v); return v; }
INL void st(float* p, vf v) { memcpy(p, &v, sizeof v); }
INL vf bc(float x) { return x - (vf){}; }
// The first n lanes only; the others read as zero.
INL vf ldn(const float* p, long n) {
    if (n >= VW) return ld(p);
    vf v = {};
    for (int i = 0; i < VW; i++) if (i < n) v[i] = p[i];
    return v;
}
INL void stn(float* p, vf v, long n) {
    if (n >= VW) return st(p, v);
    for (int i = 0; i < VW; i++) if (i < n) p[i] = v[i];
}
// A loop over channels from..to as `body(d, lanes)`: lanes.ld and lanes.st know whether they may touch a whole vector.
template <bool all> struct Lanes {
    static constexpr bool whole = all;
    long n;
    vf ld(const float* p) const { if (whole) return ::ld(p); return ldn(p, n); }
    void st(float* p, vf v) const { if (whole) ::st(p, v); else stn(p, v, n); }
};
template <class Body> INL void vectors(long from, long to, const Body& body) {
    for (; from + VW <= to; from += VW) body(from, Lanes<true>{VW});
    if (from < to) body(from, Lanes<false>{to - from});
}

INL vf vmax(vf a, vf b) { return a > b ? a : b; }
INL vf vmin(vf a, vf b) { return a < b ? a : b; }
INL vf vabs(vf x) { return (vf)((vi)x & 0x7fffffff); }
INL float hsum(vf v) {
    float x[VW];
    memcpy(x, &v, sizeof x);
    for (int w = VW / 2; w; w /= 2) for (int i = 0; i < w; i++) x[i] += x[i + w];
    return x[0];
}

static const float LOG2E = 1.44269504f, LN2 = 0.69314718f;

// 2^x for -126 <= x <= 126, NaN for NaN: adding 1.5 2^23 rounds to an integer in the low bits, a polynomial does the
// rest. Relative error 1e-7.
INL vf vexp2_inside(vf x) {
    vf t = x + 12582912.f, f = x - (t - 12582912.f);
    vf p = 0.00132765f * f + 0.00967554f;
    p = p * f + 0.05550713f; p = p * f + 0.2402212f; p = p * f + 0.69314697f; p = p * f + 1.f;
    return (vf)((vi)p + ((vi)t << 23));
}
// 2^x for x <= 0, cut off at 2^-126.
INL vf vexp2_least(vf x) { return vexp2_inside(vmax(bc(-126.f), x)); }
// 2^x; 0 below -126 (-inf included: an exact reset), inf from 128 on.
INL vf vexp2(vf x) {
    vf y = vexp2_inside(vmin(bc(126.f), vmax(bc(-126.f), x)));
    y = x < -126.f ? bc(0.f) : y;
    vf rest = vexp2_inside(vmin(bc(3.f), vmax(bc(0.f), x - 126.f)));
    return x > 126.f ? (x >= 128.f ? bc(__builtin_inff()) : y * rest) : y;
}
// 2^x for x <= 0 only.
INL vf vexp2n(vf x) {
    vf y = vexp2_inside(vmax(bc(-126.f), x));
    return x < -126.f ? bc(0.f) : y;
}
// 2^(x r) for n numbers r side by side and finite x r <= 0, cut off at 2^-126; NaN for a positive NaN only. The fastest:
// a maximum of integers, off the path of the polynomial, and no exponential waits for the one before it.
template <int n> INL void vexp2_quick(vf* y, vf x, const vf* r) {
    vf t[n], f[n];
    for (int i = 0; i < n; i++) t[i] = x * r[i] + 12582912.f;
    for (int i = 0; i < n; i++) f[i] = x * r[i] - (t[i] - 12582912.f);
    for (int i = 0; i < n; i++) y[i] = 0.00132765f * f[i] + 0.00967554f;
    for (float c : {0.05550713f, 0.2402212f, 0.69314697f, 1.f}) for (int i = 0; i < n; i++) y[i] = y[i] * f[i] + c;
    const vi least = (vi){} + (0x4b400000 - 126);
    for (int i = 0; i < n; i++) {
        const vi k = (vi)t[i];
        y[i] = (vf)((vi)y[i] + ((k > least ? k : least) << 23));
    }
}
INL vf vexp(vf x) { return vexp2(x * LOG2E); }
INL vf vsig(vf x) {  // vexp2_inside(128) is inf
    return 1.f / (1.f + vexp2_inside(vmin(bc(128.f), vmax(bc(-126.f), x * -LOG2E))));
}
// (e^2x - 1) / (e^2x + 1), with e^2x - 1 = 2^k (2^f - 1) + (2^k - 1), which does not cancel.
INL vf vtanh(vf x) {
    x = vmin(bc(10.f), vmax(bc(-10.f), x)) * (2.f * LOG2E);
    vf t = x + 12582912.f, f = x - (t - 12582912.f), scale = (vf)(((vi)t << 23) + 0x3f800000);
    vf p = 1.54035121e-4f * f + 1.33907361e-3f;
    p = p * f + 9.6182375e-3f; p = p * f + 0.05550357f; p = p * f + 0.2402265f; p = (p * f + 0.69314719f) * f;
    p = scale * p + (scale - 1.f);
    return p / (p + 2.f);
}
INL vf vlog1p01(vf w) {  // log(1 + w) for 0 <= w <= 1, by the series of artanh
    vf s = w / (2.f + w), q = s * s;
    vf p = 0.14089167f * q + 0.13980302f;
    p = p * q + 0.20012455f; p = p * q + 0.33333157f; p = p * q + 1.f;
    return 2.f * s * p;
}
INL vf vsoftplus(vf x) { return vmax(bc(0.f), x) + vlog1p01(vexp2n(vabs(x) * -LOG2E)); }
INL vf vlog(vf x) {  // natural; -inf at 0, NaN below, subnormal x taken for 0
    vi bits = (vi)x, e = (bits - 0x3f3504f3) >> 23;  // x = m 2^e with m in [sqrt(1/2), sqrt(2))
    vf m = (vf)(bits - (e << 23)), s = (m - 1.f) / (m + 1.f), q = s * s;
    vf p = 0.2444248f * q + 0.2852698f;
    p = p * q + 0.40000972f; p = p * q + 0.66666663f; p = p * q + 2.f;
    vf y = s * p + __builtin_convertvector(e, vf) * LN2;
    y = x < 1.17549435e-38f ? (x < 0.f ? bc(__builtin_nanf("")) : bc(-__builtin_inff())) : y;
    return x < __builtin_inff() ? y : x;  // inf and NaN as they are
}

// How many pieces of its n channels each of B rows is cut into, so that all threads have the same to do.
INL long pieces(long B, long n, long threads) {
    long a = B, b = threads;
    while (b) { long r = a % b; a = b; b = r; }
    return std::max(1L, std::min(B >= 4 * threads ? 1 : threads / std::max(1L, a), (n + VW - 1) / VW));
}
// Where piece s begins: whole vectors, but for the last.
INL long begin_of(long s, long per, long n) { return std::min(n, (n + VW - 1) / VW * s / per * VW); }
// Threads for `work` steps of a vector each: waking another costs some 5 us.
INL int team(long work, long threads) { return (int)std::max(1L, std::min(threads, work / 4096)); }
