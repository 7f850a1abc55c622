// Micro-kernels of the matrix recurrences. A state matrix stays in registers, a tile at a time, for a chunk of steps:
//
//     S[i] = d S[i] + c_i x        o = sum_i r_i S[i]             rows i, lanes across
//
// and, with a second pair (PAIR: the delta rule),
//
//     ahead    p = sum_i e_i S[i]     S[i] = d S[i] + c_i x + b_i z     o = sum_i r_i S[i]
//     back     S[i] = S[i] + c_i x    o = sum_i r_i S[i]    p = sum_i e_i S[i]    S[i] = d S[i] + b_i z
//
// Back in time the decay applies after the output is read. Nothing is rescaled, so decays of any size are exact.
#pragma once
#include <cstdlib>

#include "vec.h"

constexpr long STEPS = 64;  // of a chunk: its operands stay in the first caches
constexpr long ROWS = 8;    // the most rows of a tile
#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int TILE = 16;  // vectors of state in registers
#else
constexpr int TILE = 8;
#endif

constexpr long SPAN = 4 * STEPS;  // after which the gradient of a log-decay is found afresh

enum Decay { NONE, STEP, ROW, LANE };  // one number for all, a step, a row, a lane

INL long padded(long n, long to) { return (n + to - 1) / to * to; }
INL long wide(long n) { return padded(n, std::max<long>(VW, ROWS)); }  // fit for rows and for lanes

struct Chunk {  // packed operands of n steps
    long n, rows, lanes;  // rows and lanes: padded, and the distance from one step's values to the next's
    const float *c, *r, *x, *d;
    float *o, *S;
    const float *b = nullptr, *e = nullptr, *z = nullptr;
    float* p = nullptr;
};

template <int RT, int LT, Decay D, bool BACK, bool PAIR> static void tile(const Chunk& a, long i, long j) {
    vf s[RT][LT];
    float* S = a.S + i * a.lanes + j;
    for (int m = 0; m < RT; m++) for (int l = 0; l < LT; l++) s[m][l] = ld(S + m * a.lanes + l * VW);
    for (long step = 0; step < a.n; step++) {
        const long t = BACK ? a.n - 1 - step : step, row = t * a.rows + i, lane = t * a.lanes + j;
        vf o[LT], x[LT], p[LT], z[LT], across[LT];
        for (int l = 0; l < LT; l++) {
            o[l] = i ? ld(a.o + lane + l * VW) : bc(0);
            x[l] = ld(a.x + lane + l * VW);
            if (PAIR) p[l] = i ? ld(a.p + lane + l * VW) : bc(0), z[l] = ld(a.z + lane + l * VW);
            if (D == LANE) across[l] = ld(a.d + lane + l * VW);
        }
        const vf all = D == STEP ? bc(a.d[t]) : bc(1);
        #pragma GCC unroll 8
        for (int m = 0; m < RT; m++) {
            const vf c = bc(a.c[row + m]), r = bc(a.r[row + m]), each = D == ROW ? bc(a.d[row + m]) : all;
            const vf b = PAIR ? bc(a.b[row + m]) : c, e = PAIR ? bc(a.e[row + m]) : c;
            #pragma GCC unroll 8
            for (int l = 0; l < LT; l++) {
                const vf d = D == LANE ? across[l] : each;
                vf v = s[m][l];
                if (PAIR && !BACK) p[l] += e * v;
                if (D != NONE && !BACK) v = v * d;
                v += c * x[l];
                if (PAIR && !BACK) v += b * z[l];
                o[l] += r * v;
                if (PAIR && BACK) p[l] += e * v;
                if (D != NONE && BACK) v = v * d;
                if (PAIR && BACK) v += b * z[l];
                s[m][l] = v;
            }
        }
        for (int l = 0; l < LT; l++) {
            st(a.o + lane + l * VW, o[l]);
            if (PAIR) st(a.p + lane + l * VW, p[l]);
        }
    }
    for (int m = 0; m < RT; m++) for (int l = 0; l < LT; l++) st(S + m * a.lanes + l * VW, s[m][l]);
}

template <int LT, Decay D, bool BACK, bool PAIR> static long columns(const Chunk& a, long j) {
    constexpr int RT = std::min<int>(TILE / LT, ROWS);
    for (; j + LT * VW <= a.lanes; j += LT * VW)
        for (long i = 0; i < a.rows; i += RT) tile<RT, LT, D, BACK, PAIR>(a, i, j);
    return j;
}

template <Decay D, bool BACK, bool PAIR> static void walk_as(const Chunk& a) {
    constexpr int WIDE = PAIR ? TILE / 8 : TILE / 4;
    long j = columns<WIDE, D, BACK, PAIR>(a, 0);
    if (WIDE > 2) j = columns<2, D, BACK, PAIR>(a, j);
    columns<1, D, BACK, PAIR>(a, j);
}

template <bool BACK, bool PAIR = false> static void walk(const Chunk& a, Decay decay) {
    if (decay == NONE) walk_as<NONE, BACK, PAIR>(a);
    if (decay == STEP) walk_as<STEP, BACK, PAIR>(a);
    if constexpr (!PAIR) if (decay == ROW) walk_as<ROW, BACK, false>(a);
    if (decay == LANE) walk_as<LANE, BACK, PAIR>(a);
}

struct Scratch {  // one aligned block of zeros, handed out piece by piece
    float *block, *next;
    explicit Scratch(long n) {
        const long all = padded(n, 16) + 32 * 16;
        block = next = static_cast<float*>(std::aligned_alloc(64, all * sizeof(float)));
        std::fill(block, block + all, 0.f);
    }
    Scratch(const Scratch&) = delete;
    ~Scratch() { std::free(block); }
    float* take(long n) {
        float* at = next;
        next += padded(n, 16);
        return at;
    }
};

// n rows of `real` numbers, `stride` apart, to rows of `width`, filled up with zeros; and back, or added to what is
// there. `next`: in how many steps the rows wanted next lie, too far apart for the processor to guess.
INL void pack(float* to, long width, const float* from, long stride, long n, long real, long next = 0) {
    for (long t = 0; t < n; t++) {
        if (next) for (long i = 0; i < real; i += 16) __builtin_prefetch(from + (t + next) * stride + i, 0, 2);
        memcpy(to + t * width, from + t * stride, real * sizeof(float));
        for (long i = real; i < width; i++) to[t * width + i] = 0;
    }
}
INL void unpack(float* to, long stride, const float* from, long width, long n, long real, bool add = false) {
    for (long t = 0; t < n; t++)
        if (add) for (long i = 0; i < real; i++) to[t * stride + i] += from[t * width + i];
        else memcpy(to + t * stride, from + t * width, real * sizeof(float));
}
// An [n, m] matrix as [m, n], its rows filled up.
INL void transpose(float* to, long width, const float* from, long n, long m) {
    for (long j = 0; j < m; j++) for (long i = 0; i < width; i++) to[j * width + i] = i < n ? from[i * m + j] : 0;
}
INL float total(const float* x, long n) {
    vf all = bc(0);
    for (long i = 0; i < n; i += VW) all += ld(x + i);
    return hsum(all);
}
// Sums over the rows of x times y, lane by lane, or one sum of all.
INL void overlap(float* sums, const float* x, const float* y, long rows, long lanes, long wanted) {
    std::fill_n(sums, lanes, 0.f);
    for (long j = 0; j < rows; j++)
        for (long i = 0; i < lanes; i += VW) st(sums + i, ld(sums + i) + ld(x + j * lanes + i) * ld(y + j * lanes + i));
    if (wanted == 1) *sums = total(sums, lanes);
}
INL void multiply(float* x, const float* y, long n) {
    for (long i = 0; i < n; i += VW) st(x + i, ld(x + i) * ld(y + i));
}
INL void exponentials(float* x, long n) {
    vi grows = {};
    for (long i = 0; i < n; i += VW) grows |= ld(x + i) > 0.f;
    bool any = false;
    for (int i = 0; i < VW; i++) any |= grows[i] != 0;
    if (any) for (long i = 0; i < n; i += VW) st(x + i, vexp(ld(x + i)));
    else for (long i = 0; i < n; i += VW) st(x + i, vexp2n(ld(x + i) * LOG2E));
}
