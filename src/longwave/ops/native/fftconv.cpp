// Causal convolution with long filters by an FFT of its own, VW channels in the lanes: no shuffles, no transposes.
//
// Right-angle convolution: turned by exp(i pi j / 2n), the n-point cyclic convolution of two real signals holds the
// first n outputs in its real part and the others in its imaginary part, so nothing is padded to 2n. Forwards the FFT
// decimates in frequency, backwards in time, so nothing is put in order either. Radix 4, depth first: a part that fits
// into a cache stays there until it is done.
#include "vec.h"
#include <cmath>
#include <memory>

struct FFTConv {
    Tensor<3> u, h, y;
    long B, T, D, filters, L, threads;
};

struct FFTConvBackward {
    Tensor<3> u, h, dy, du, dh;
    long B, T, D, filters, L, threads;
};

namespace {

struct Plan {
    long n;                                  // 2^a or 3 2^a
    std::vector<float> turn;                 // exp(i pi j / 2n), j < n
    std::vector<std::vector<float>> twiddle; // of each radix-4 pass: exp(-2 pi i jk / m), k = 1, 2, 3

    explicit Plan(long least) {
        for (n = 1; n < least; n *= 2) {}
        if (n / 4 * 3 >= least) n = n / 4 * 3;
        const long fine = 64, coarse = n / fine + 1;  // exp(i (a + b)) from two short tables, in double
        std::vector<double> table(2 * (fine + coarse));
        for (long j = 0; j < fine + coarse; j++) {
            const double angle = M_PI / 2 * (j < fine ? j : (j - fine) * fine) / n;
            table[2 * j] = std::cos(angle), table[2 * j + 1] = std::sin(angle);
        }
        turn.resize(2 * n);
        for (long j = 0; j < n; j++) {
            const double *a = &table[j % fine * 2], *b = &table[(fine + j / fine) * 2];
            turn[2 * j] = (float)(a[0] * b[0] - a[1] * b[1]), turn[2 * j + 1] = (float)(a[0] * b[1] + a[1] * b[0]);
        }
        for (long m = n; m % 4 == 0; m /= 4) {
            std::vector<float> w(6 * (m / 4));
            for (long j = 0; j < m / 4; j++) for (long k = 1; k < 4; k++) {
                const long at = j * k * 4 * (n / m), r = at % n;  // a full circle is 4n steps
                float c = turn[2 * r], s = turn[2 * r + 1], *to = &w[6 * j + 2 * (k - 1)];
                for (long quarter = at / n; quarter > 0; quarter--) { const float was = c; c = -s, s = was; }
                to[0] = c, to[1] = -s;
            }
            twiddle.push_back(w);
        }
    }
};

const float HALF_ROOT3 = 0.8660254037844386f;

// x holds real and imaginary parts in turns. The direction is -1 or +1, the sign of i.
template <int direction> INL void three(vf* x0, vf* x1, vf* x2) {
    const vf sr = x1[0] + x2[0], si = x1[1] + x2[1];
    const vf dr = (x1[0] - x2[0]) * HALF_ROOT3, di = (x1[1] - x2[1]) * HALF_ROOT3;
    const vf r = x0[0] - 0.5f * sr, i = x0[1] - 0.5f * si;
    x0[0] += sr, x0[1] += si;
    x1[0] = r - (float)direction * di, x1[1] = i + (float)direction * dr;
    x2[0] = r + (float)direction * di, x2[1] = i - (float)direction * dr;
}

INL void two(vf* a, vf* b) {
    const vf r = a[0] - b[0], i = a[1] - b[1];
    a[0] += b[0], a[1] += b[1], b[0] = r, b[1] = i;
}

template <int direction> INL void turn_sixth(vf* x, int j) {  // by j sixths of a half circle
    const float c = j == 1 ? 0.5f : -0.5f, s = direction * HALF_ROOT3;
    const vf r = x[0] * c - x[1] * s;
    x[1] = x[0] * s + x[1] * c, x[0] = r;
}

template <int direction> INL void leaf(vf* x, long m) {  // 1, 2, 3 or 6 points
    if (m == 2) two(x, x + 2);
    if (m == 3) three<direction>(x, x + 2, x + 4);
    if (m != 6) return;
    if (direction < 0) {
        for (int j = 0; j < 3; j++) two(x + 2 * j, x + 6 + 2 * j);
        for (int j = 1; j < 3; j++) turn_sixth<direction>(x + 6 + 2 * j, j);
    }
    three<direction>(x, x + 2, x + 4), three<direction>(x + 6, x + 8, x + 10);
    if (direction > 0) {
        for (int j = 1; j < 3; j++) turn_sixth<direction>(x + 6 + 2 * j, j);
        for (int j = 0; j < 3; j++) two(x + 2 * j, x + 6 + 2 * j);
    }
}

// x turned by (w[0], w[1]), or back; without w as it is.
INL void put(vf* x, vf r, vf i, const float* w) {
    x[0] = w ? r * w[0] - i * w[1] : r, x[1] = w ? r * w[1] + i * w[0] : i;
}
INL void take(const vf* x, vf& r, vf& i, const float* w) {
    r = w ? x[0] * w[0] + x[1] * w[1] : x[0], i = w ? x[1] * w[0] - x[0] * w[1] : x[1];
}

// Point j of x, real and imaginary part: where passes in place take their points from and put them.
struct Points {
    vf* x;
    void get(long j, vf& r, vf& i) const { r = x[2 * j], i = x[2 * j + 1]; }
    void set(long j, vf r, vf i) const { x[2 * j] = r, x[2 * j + 1] = i; }
};

// Four points q apart, q times; the last pass has q = 1 and turns nothing.
template <bool last, class From> INL void pass_forward(const From& from, vf* x, long q, const float* w) {
    vf *x0 = x, *x1 = x + 2 * q, *x2 = x + 4 * q, *x3 = x + 6 * q, ar, ai, br, bi, cr, ci, dr, di;
    for (long j = 0; j < q; j++, w += 6) {
        from.get(j, ar, ai), from.get(j + q, br, bi), from.get(j + 2 * q, cr, ci), from.get(j + 3 * q, dr, di);
        const vf s0r = ar + cr, s0i = ai + ci, s1r = ar - cr, s1i = ai - ci;
        const vf s2r = br + dr, s2i = bi + di, s3r = bi - di, s3i = dr - br;
        x0[2 * j] = s0r + s2r, x0[2 * j + 1] = s0i + s2i;
        put(x1 + 2 * j, s1r + s3r, s1i + s3i, last ? nullptr : w);
        put(x2 + 2 * j, s0r - s2r, s0i - s2i, last ? nullptr : w + 2);
        put(x3 + 2 * j, s1r - s3r, s1i - s3i, last ? nullptr : w + 4);
    }
}

template <bool last, class Into> INL void pass_back(vf* x, const Into& into, long q, const float* w) {
    vf *x0 = x, *x1 = x + 2 * q, *x2 = x + 4 * q, *x3 = x + 6 * q, br, bi, cr, ci, dr, di;
    for (long j = 0; j < q; j++, w += 6) {
        take(x1 + 2 * j, br, bi, last ? nullptr : w);
        take(x2 + 2 * j, cr, ci, last ? nullptr : w + 2);
        take(x3 + 2 * j, dr, di, last ? nullptr : w + 4);
        const vf ar = x0[2 * j], ai = x0[2 * j + 1], s0r = ar + cr, s0i = ai + ci, s1r = ar - cr, s1i = ai - ci;
        const vf s2r = br + dr, s2i = bi + di, s3r = di - bi, s3i = br - dr;
        into.set(j, s0r + s2r, s0i + s2i), into.set(j + q, s1r + s3r, s1i + s3i);
        into.set(j + 2 * q, s0r - s2r, s0i - s2i), into.set(j + 3 * q, s1r - s3r, s1i - s3i);
    }
}

// The signal at `from` in m points; what passes leave is in x.
template <class From> void forward(const From& from, vf* x, long m, const std::vector<float>* w) {
    if (m % 4) {
        for (long j = 0; j < m; j++) from.get(j, x[2 * j], x[2 * j + 1]);
        return leaf<-1>(x, m);
    }
    if (m == 4) return pass_forward<true>(from, x, 1, nullptr);
    pass_forward<false>(from, x, m / 4, w->data());
    for (int i = 0; i < 4; i++) {
        vf* part = x + i * (m / 2);
        if (m == 16) pass_forward<true>(Points{part}, part, 1, nullptr);
        else forward(Points{part}, part, m / 4, w + 1);
    }
}

template <class Into> void back(vf* x, const Into& into, long m, const std::vector<float>* w) {
    if (m % 4) {
        leaf<1>(x, m);
        for (long j = 0; j < m; j++) into.set(j, x[2 * j], x[2 * j + 1]);
        return;
    }
    if (m == 4) return pass_back<true>(x, into, 1, nullptr);
    for (int i = 0; i < 4; i++) {
        vf* part = x + i * (m / 2);
        if (m == 16) pass_back<true>(part, Points{part}, 1, nullptr);
        else back(part, Points{part}, m / 4, w + 1);
    }
    pass_back<false>(x, into, m / 4, w->data());
}

// Rows in memory as points first ... first + count - 1, turned on their way in and out; other points are zero.
struct Rows {
    float* p;
    long stride, first, count, lanes;
    const Plan& plan;

    Rows(const float* at, long stride, long first, long count, bool reverse, long lanes, const Plan& plan)
        : p((float*)at + (reverse ? (count - 1) * stride : 0)), stride(reverse ? -stride : stride), first(first),
          count(count), lanes(lanes), plan(plan) {}

    void get(long j, vf& r, vf& i) const {
        const float *from = p + (j - first) * stride, *w = &plan.turn[2 * j];
        __builtin_prefetch(from + 8 * stride);
        const vf v = (unsigned long)(j - first) < (unsigned long)count ? ldn(from, lanes) : bc(0.f);
        r = v * w[0], i = v * w[1];
    }
    void set(long j, vf r, vf i) const {
        const float *w = &plan.turn[2 * j], scale = 1.f / plan.n;
        if ((unsigned long)(j - first) >= (unsigned long)count) return;
        stn(p + (j - first) * stride, r * (w[0] * scale) + i * (w[1] * scale), lanes);
    }
};

struct Signal {  // a spectrum of VW channels, or of the last few
    const Plan& plan;
    const long lanes;
    std::unique_ptr<vf[]> held;
    vf* x;

    Signal(const Plan& plan, long lanes) : plan(plan), lanes(lanes), held(new vf[2 * plan.n]), x(held.get()) {}

    // The spectrum of rows 0 .. count - 1, or of these in reverse.
    void load(const float* from, long stride, long count, bool reverse = false) {
        forward(Rows(from, stride, 0, count, reverse, lanes, plan), x, plan.n, plan.twiddle.data());
    }

    // The signal of this spectrum: outputs first, first + 1 ... into rows 0 .. count - 1, or in reverse.
    void store(float* to, long stride, long first, long count, bool reverse = false) {
        back(x, Rows(to, stride, first, count, reverse, lanes, plan), plan.n, plan.twiddle.data());
    }

    void multiply(const Signal& a, const Signal& b, bool add = false) {
        for (long j = 0; j < 2 * plan.n; j += 2) {
            const vf r = a.x[j] * b.x[j] - a.x[j + 1] * b.x[j + 1], i = a.x[j] * b.x[j + 1] + a.x[j + 1] * b.x[j];
            x[j] = add ? x[j] + r : r, x[j + 1] = add ? x[j + 1] + i : i;
        }
    }
};

}  // namespace

KERNEL(fftconv, FFTConv) {
    const Plan plan(x.T);
    const long groups = (x.D + VW - 1) / VW;
    const long parts = x.filters > 1 ? x.B : std::min(x.B, (x.threads + groups - 1) / groups);
    const int team_size = team(groups * x.B * x.T * 8, x.threads);
    #pragma omp parallel for collapse(2) schedule(dynamic) num_threads(team_size)
    for (long v = 0; v < groups; v++) for (long part = 0; part < parts; part++) {
        const long d = v * VW, lanes = std::min<long>(VW, x.D - d), first = x.B * part / parts;
        Signal h(plan, lanes), u(plan, lanes);
        h.load(x.h(x.filters > 1 ? first : 0, 0) + d, x.h.stride[1], std::min(x.L, x.T));
        for (long b = first; b < x.B * (part + 1) / parts; b++) {
            u.load(x.u(b, 0) + d, x.u.stride[1], x.T);
            u.multiply(u, h);
            u.store(x.y(b, 0) + d, x.y.stride[1], 0, x.T);
        }
    }
}

// With time reversed the gradient of u is a convolution of dy with h, and that of h one with u, summed over the rows
// before it leaves the spectrum.
KERNEL(fftconv_backward, FFTConvBackward) {
    const Plan plan(x.T);
    const long groups = (x.D + VW - 1) / VW, taps = std::min(x.L, x.T);
    const int team_size = team(groups * x.B * x.T * 16, x.threads);
    #pragma omp parallel for collapse(2) schedule(dynamic) num_threads(team_size)
    for (long v = 0; v < groups; v++) for (long f = 0; f < x.filters; f++) {
        const long d = v * VW, lanes = std::min<long>(VW, x.D - d), rows = x.B / x.filters;
        Signal h(plan, lanes), u(plan, lanes), dy(plan, lanes), dh(plan, lanes);
        h.load(x.h(f, 0) + d, x.h.stride[1], taps);
        for (long b = f * rows; b < (f + 1) * rows; b++) {
            dy.load(x.dy(b, 0) + d, x.dy.stride[1], x.T, true);
            u.load(x.u(b, 0) + d, x.u.stride[1], x.T);
            dh.multiply(dy, u, b > f * rows);
            dy.multiply(dy, h);
            dy.store(x.du(b, 0) + d, x.du.stride[1], 0, x.T, true);
        }
        dh.store(x.dh(f, 0) + d, x.dh.stride[1], x.T - taps, taps, true);
        for (long l = taps; l < x.L; l++) stn(x.dh(f, l) + d, bc(0.f), lanes);
    }
}
