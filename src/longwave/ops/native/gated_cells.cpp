// LSTM and GRU over time, with refined and tied gates. What x adds to the gates is given for all steps; a step
// multiplies U with the last h and applies the gates to the sums.
//
// Threads share a batch row: each owns some units, with all their gates, and the columns of U for them, packed so that
// they are read as they lie and stay in its second cache. Once a step they wait for each other.
#include <atomic>
#include <memory>
#include <thread>

#include "matrix.h"

// Forward and backward: what the other needs is null, and acts and extra where no backward pass follows. X: the gates
// of all units.
struct GatedCell {
    Tensor<3> gates; Tensor<2> U; Tensor<1> b_n; Tensor<2> h, c; Tensor<1, long> lengths;
    Tensor<3> y; Tensor<2> last_h, last_c; Tensor<3> acts, extra;
    Tensor<3> grad_y; Tensor<2> grad_h, grad_c; Tensor<3> dx, du; Tensor<2> dh, dc;
    long kind;
    long B, T, X, D, threads;

    long length(long b) const { return lengths ? lengths[b] : T; }
};

namespace {

// The cells. `forward` gets W x + b and U h of all gates, replaces the carried number (LSTM: c, GRU: h) and returns h.
// `backward` gets what the forward pass kept, replaces the gradient of the carried number, and returns those of the
// two inputs. `extra` is what is kept beside the gates: the LSTM's c, the GRU's U h inside n.

template <bool REFINED> INL vf keep_gate(vf f, vf r) { return REFINED ? f * f + 2.f * r * f * (1.f - f) : f; }
template <bool REFINED> INL vf keep_slope(vf f, vf r) { return REFINED ? 2.f * f + r * (2.f - 4.f * f) : bc(1); }

template <bool REFINED, bool TIED> struct Lstm {
    static constexpr int GATES = 4 + REFINED - TIED, F = !TIED, G = F + 1, O = F + 2, R = F + 2 + REFINED;
    static constexpr bool TWO = true;  // both h and c are handed on

    INL vf forward(const vf* x, const vf* u, vf& c, vf* act, vf& extra) {
        for (int g = 0; g < GATES; g++) act[g] = g == G ? vtanh(x[g] + u[g]) : vsig(x[g] + u[g]);
        const vf keep = keep_gate<REFINED>(act[F], act[R]);
        extra = c = keep * c + (TIED ? 1.f - keep : act[0]) * act[G];
        return act[O] * vtanh(c);
    }
    INL void backward(const vf* act, vf c, vf before, vf dh, vf& carry, vf* dx, vf* du) {
        const vf f = act[F], g = act[G], o = act[O], r = act[R], shown = vtanh(c);
        const vf keep = keep_gate<REFINED>(f, r), take = TIED ? 1.f - keep : act[0];
        const vf dc = carry + dh * o * (1.f - shown * shown), dkeep = dc * (TIED ? before - g : before);
        if (REFINED) dx[R] = dkeep * 2.f * f * (1.f - f) * r * (1.f - r);
        if (!TIED) dx[0] = dc * g * take * (1.f - take);
        dx[F] = dkeep * keep_slope<REFINED>(f, r) * f * (1.f - f);
        dx[G] = dc * take * (1.f - g * g);
        dx[O] = dh * shown * o * (1.f - o);
        for (int i = 0; i < GATES; i++) du[i] = dx[i];
        carry = dc * keep;
    }
};

template <bool REFINED> struct Gru {
    static constexpr int GATES = 3 + REFINED, R = 0, Z = 1, N = 2, Q = 2 + REFINED;
    static constexpr bool TWO = false;

    INL vf forward(const vf* x, const vf* u, vf& h, vf* act, vf& extra) {
        for (int g = 0; g < GATES; g++) if (g != N) act[g] = vsig(x[g] + u[g]);
        extra = u[N];
        act[N] = vtanh(x[N] + act[R] * extra);
        const vf keep = keep_gate<REFINED>(act[Z], act[Q]);
        return h = (1.f - keep) * act[N] + keep * h;
    }
    INL void backward(const vf* act, vf extra, vf before, vf grad, vf& carry, vf* dx, vf* du) {
        const vf r = act[R], z = act[Z], n = act[N], q = act[Q], keep = keep_gate<REFINED>(z, q), dh = grad + carry;
        const vf dkeep = dh * (before - n), dn = dh * (1.f - keep) * (1.f - n * n);
        if (REFINED) dx[Q] = dkeep * 2.f * z * (1.f - z) * q * (1.f - q);
        dx[R] = dn * extra * r * (1.f - r);
        dx[Z] = dkeep * keep_slope<REFINED>(z, q) * z * (1.f - z);
        dx[N] = dn;
        for (int i = 0; i < GATES; i++) du[i] = i == N ? dn * r : dx[i];
        carry = dh * keep;
    }
};

// Waits by turning, for a step is short; gives way where the others have no processor.
struct alignas(64) Barrier {
    std::atomic<long> there{0}, turn{0};
    void wait(long all) {
        if (all == 1) return;
        const long now = turn.load(std::memory_order_relaxed);
        if (there.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
            there.store(0, std::memory_order_relaxed);
            turn.store(now + 1, std::memory_order_release);
        } else {
            for (long spins = 0; turn.load(std::memory_order_acquire) == now;)
                if (++spins > 4000) std::this_thread::yield();
        }
    }
};

// What a thread does: some rows of the batch, with some blocks of VW units.
struct Share { long row, end_row, block, end_block, mates; Barrier* barrier; };

constexpr long CACHE = 160 * 1024;  // numbers of U that a thread's second cache holds beside other things

// How many threads one row is worth, and how many of them there are for rows.
long mates_of(const GatedCell& x, long threads) {
    const long blocks = (x.D + VW - 1) / VW, size = x.X * x.D;
    if (threads == 1 || size * std::min(x.B, 8L) < 32 * 1024) return 1;
    const long rows = std::min(x.B, std::max(1L, threads / std::max(1L, (size + CACHE - 1) / CACHE)));
    return std::min(threads / rows, blocks);
}

template <class Work> void shared(const GatedCell& x, Work work) {
    const std::unique_ptr<Barrier[]> barriers(new Barrier[x.threads]);
    #pragma omp parallel num_threads(team(x.B * x.T * x.X * x.D / VW, x.threads))
    {
        long threads = 1, self = 0;
        #ifdef _OPENMP
        threads = omp_get_num_threads(), self = omp_get_thread_num();
        #endif
        const long mates = mates_of(x, threads), teams = std::min(threads / mates, x.B), mine = self / mates;
        const long blocks = (x.D + VW - 1) / VW, place = self % mates;
        if (mine < teams)
            work(Share{x.B * mine / teams, x.B * (mine + 1) / teams, blocks * place / mates,
                       blocks * (place + 1) / mates, mates, &barriers[mine]});
    }
}

// There are registers for the sums of three gates at most: more are multiplied as first some, then the others.
template <int GATES> constexpr int SOME = GATES > 3 ? GATES - GATES / 2 : GATES;

// U for a thread's blocks: for a block, a column of U, VW units of some gates; then the same of the others.
template <int GATES> void pack_forward(float* to, const GatedCell& x, const Share& s) {
    for (long block = s.block; block < s.end_block; block++)
        for (long g = 0; g < GATES; g++)
            for (long i = 0; i < VW; i++) {
                const long unit = block * VW + i;
                const long first = g < SOME<GATES> ? 0 : SOME<GATES>, n = first ? GATES - first : SOME<GATES>;
                float* at = to + (((block - s.block) * GATES + first) * x.D + g - first) * VW + i;
                const float* row = x.U(g * x.D + std::min(unit, x.D - 1));
                for (long k = 0; k < x.D; k++) at[k * n * VW] = unit < x.D ? row[k] : 0;
            }
}

// sums[i] += w^T x[i] for BT rows i: w is [n][LT][VW]; the sums of a row are `apart`.
template <int BT, int LT> INL void add_products(float* sums, long apart, const float* w, const float* const* x, long n) {
    constexpr int WAYS = (7 + BT * LT) / (BT * LT);  // side by side, for an addition takes four cycles on two ports
    vf sum[WAYS][BT][LT] = {};
    for (int i = 0; i < BT; i++) for (int l = 0; l < LT; l++) sum[0][i][l] = ld(sums + i * apart + l * VW);
    long k = 0;
    for (; k + WAYS <= n; k += WAYS)
        #pragma GCC unroll 4
        for (int way = 0; way < WAYS; way++) {
            vf each[LT];
            for (int l = 0; l < LT; l++) each[l] = ld(w + ((k + way) * LT + l) * VW);
            #pragma GCC unroll 8
            for (int i = 0; i < BT; i++) {
                const vf one = bc(x[i][k + way]);
                #pragma GCC unroll 3
                for (int l = 0; l < LT; l++) sum[way][i][l] += each[l] * one;
            }
        }
    for (; k < n; k++)
        for (int l = 0; l < LT; l++)
            for (int i = 0; i < BT; i++) sum[0][i][l] += ld(w + (k * LT + l) * VW) * bc(x[i][k]);
    for (int i = 0; i < BT; i++) for (int l = 0; l < LT; l++) {
        for (int way = 1; way < WAYS; way++) sum[0][i][l] += sum[way][i][l];
        st(sums + i * apart + l * VW, sum[0][i][l]);
    }
}

// The same for any number of rows of x, a part of w at a time where it is read more than once.
template <int LT> void products(float* sums, long apart, const float* w, const float* x, long rows, long n) {
    constexpr int MOST = TILE / 2;
    for (long i = 0; i < rows; i++) std::fill_n(sums + i * apart, LT * VW, 0.f);
    const long part = rows > MOST ? 64 : n;
    for (long k = 0; k < n; k += part) {
        const long m = std::min(part, n - k);
        const float* at[MOST];
        long i = 0;
        auto some = [&](auto count) {
            for (; i + count <= rows; i += count) {
                for (int j = 0; j < count; j++) at[j] = x + (i + j) * n + k;
                add_products<count, LT>(sums + i * apart, apart, w + k * LT * VW, at, m);
            }
        };
        some(Count<MOST>{}), some(Count<4>{}), some(Count<2>{}), some(Count<1>{});
    }
}
template <int GATES> void gate_products(float* sums, const float* w, const float* x, long rows, long n) {
    constexpr int A = SOME<GATES>, B = GATES - A;
    products<A>(sums, GATES * VW, w, x, rows, n);
    if constexpr (B) products<B>(sums + A * VW, GATES * VW, w + n * A * VW, x, rows, n);
}

// Asks for what the next step wants: its rows lie too far apart for the processor to guess.
INL void soon(const float* p) { __builtin_prefetch(p, 0, 2); }
INL void soon_written(const float* p) { __builtin_prefetch(p, 1, 2); }

template <class Cell> INL void step_forward(const GatedCell& x, long b, long t, long unit, const float* sums) {
    constexpr int GATES = Cell::GATES;
    const long n = std::min<long>(VW, x.D - unit);
    float* y = x.y(b, t) + unit;
    if (t >= x.length(b)) return stn(y, bc(0), n);
    float* carried = (Cell::TWO ? x.last_c : x.last_h)(b) + unit;
    vf given[GATES], sum[GATES], act[GATES], extra, carry = ldn(carried, n);
    for (int g = 0; g < GATES; g++) {
        given[g] = ldn(x.gates(b, t) + g * x.D + unit, n), sum[g] = ld(sums + g * VW);
        soon(x.gates(b, t + 1) + g * x.D + unit);
        if (x.acts) soon_written(x.acts(b, t + 1) + g * x.D + unit);
    }
    soon_written(x.y(b, t + 1) + unit);
    if (x.b_n) sum[2] += ldn(x.b_n.p + unit, n);
    const vf out = Cell::forward(given, sum, carry, act, extra);
    stn(y, out, n), stn(carried, carry, n);
    if (Cell::TWO && t + 1 == x.length(b)) stn(x.last_h(b) + unit, out, n);
    if (!x.acts) return;
    for (int g = 0; g < GATES; g++) stn(x.acts(b, t) + g * x.D + unit, act[g], n);
    stn(x.extra(b, t) + unit, extra, n), soon_written(x.extra(b, t + 1) + unit);
}

template <class Cell> void forward(const GatedCell& x) {
    shared(x, [&](const Share& s) {
        constexpr int GATES = Cell::GATES;
        const long rows = s.end_row - s.row, from = s.block * VW, to = std::min(x.D, s.end_block * VW);
        Scratch room((s.end_block - s.block) * x.D * GATES * VW + rows * (GATES * VW + x.D));
        float *U = room.take((s.end_block - s.block) * x.D * GATES * VW), *sums = room.take(rows * GATES * VW);
        float* h = room.take(rows * x.D);  // of all units, side by side
        pack_forward<GATES>(U, x, s);
        for (long i = 0; i < rows; i++) {
            if (x.h) std::copy_n(x.h(s.row + i), x.D, h + i * x.D);
            for (long d = from; d < to; d++) {
                x.last_h(s.row + i)[d] = h[i * x.D + d];
                if (Cell::TWO) x.last_c(s.row + i)[d] = x.c ? x.c(s.row + i)[d] : 0;
            }
        }
        for (long t = 0; t < x.T; t++) {
            for (long block = s.block; block < s.end_block; block++) {
                gate_products<GATES>(sums, U + (block - s.block) * x.D * GATES * VW, h, rows, x.D);
                for (long i = 0; i < rows; i++) step_forward<Cell>(x, s.row + i, t, block * VW, sums + i * GATES * VW);
            }
            s.barrier->wait(s.mates);
            for (long i = 0; i < rows; i++) std::copy_n(x.y(s.row + i, t), x.D, h + i * x.D);
        }
    });
}

// `dh` is what the gates of the step after t pass back.
template <class Cell> INL void step_backward(const GatedCell& x, long b, long t, long unit, vf dh) {
    constexpr int GATES = Cell::GATES;
    const long n = std::min<long>(VW, x.D - unit);
    vf dx[GATES] = {}, du[GATES] = {};
    if (t < x.length(b)) {
        float* carried = (Cell::TWO ? x.dc : x.dh)(b) + unit;
        vf act[GATES], carry = ldn(carried, n);
        for (int g = 0; g < GATES; g++) {
            act[g] = ldn(x.acts(b, t) + g * x.D + unit, n);
            soon(x.acts(b, t - 1) + g * x.D + unit), soon_written(x.dx(b, t - 1) + g * x.D + unit);
            if (!Cell::TWO) soon_written(x.du(b, t - 1) + g * x.D + unit);
        }
        const Tensor<3>& kept = Cell::TWO ? x.extra : x.y;
        const Tensor<2>& first = Cell::TWO ? x.c : x.h;
        const vf before = t ? ldn(kept(b, t - 1) + unit, n) : first ? ldn(first(b) + unit, n) : bc(0);
        soon(kept(b, t - 2) + unit), soon(x.extra(b, t - 1) + unit);
        if (x.grad_y) soon(x.grad_y(b, t - 1) + unit), dh += ldn(x.grad_y(b, t) + unit, n);
        if (Cell::TWO && x.grad_h && t + 1 == x.length(b)) dh += ldn(x.grad_h(b) + unit, n);
        Cell::backward(act, ldn(x.extra(b, t) + unit, n), before, dh, carry, dx, du);
        stn(carried, carry, n);
    }
    for (int g = 0; g < GATES; g++) {
        stn(x.dx(b, t) + g * x.D + unit, dx[g], n);
        if (!Cell::TWO) stn(x.du(b, t) + g * x.D + unit, du[g], n);
    }
}

// Before the first step: the gradient of the first h.
template <class Cell> INL void first_backward(const GatedCell& x, long b, long unit, vf dh) {
    const long n = std::min<long>(VW, x.D - unit);
    if (!Cell::TWO) dh += ldn(x.dh(b) + unit, n);
    else if (!x.length(b) && x.grad_h) dh = ldn(x.grad_h(b) + unit, n);
    stn(x.dh(b) + unit, dh, n);
}

// One step of LT blocks of units, whose part of U is [X][LT][VW].
template <class Cell, int LT> void blocks_backward(const GatedCell& x, const Share& s, long t, long block,
                                                   const float* U, const float* later, float* sums) {
    const long rows = s.end_row - s.row;
    if (t + 1 < x.T) products<LT>(sums, LT * VW, U, later, rows, x.X);
    else std::fill_n(sums, rows * LT * VW, 0.f);
    for (long i = 0; i < rows; i++) for (int l = 0; l < LT; l++) {
        const vf dh = ld(sums + (i * LT + l) * VW);
        if (t < 0) first_backward<Cell>(x, s.row + i, (block + l) * VW, dh);
        else step_backward<Cell>(x, s.row + i, t, (block + l) * VW, dh);
    }
}

template <class Cell> void backward(const GatedCell& x) {
    shared(x, [&](const Share& s) {
        constexpr long WIDE = 2;
        const long wide_end = s.block + (s.end_block - s.block) / WIDE * WIDE, rows = s.end_row - s.row;
        Scratch room((s.end_block - s.block) * x.X * VW + rows * (WIDE * VW + x.X));
        float *U = room.take((s.end_block - s.block) * x.X * VW), *sums = room.take(rows * WIDE * VW);
        float* later = room.take(rows * x.X);  // the gradients of all gates, side by side
        for (long block = s.block, blocks; block < s.end_block; block += blocks) {
            blocks = block < wide_end ? WIDE : 1;
            const long unit = block * VW, n = std::min(blocks * VW, x.D - unit);
            pack(U + (block - s.block) * x.X * VW, blocks * VW, x.U.p + unit, x.U.stride[0], x.X, n);
        }
        const Tensor<2>&carried = Cell::TWO ? x.dc : x.dh, &last = Cell::TWO ? x.grad_c : x.grad_h;
        for (long b = s.row; b < s.end_row; b++)
            for (long i = s.block * VW; i < std::min(x.D, s.end_block * VW); i++) carried(b)[i] = last ? last(b)[i] : 0;
        for (long t = x.T - 1; t >= -1; t--) {
            for (long block = s.block; block < wide_end; block += WIDE)
                blocks_backward<Cell, WIDE>(x, s, t, block, U + (block - s.block) * x.X * VW, later, sums);
            for (long block = wide_end; block < s.end_block; block++)
                blocks_backward<Cell, 1>(x, s, t, block, U + (block - s.block) * x.X * VW, later, sums);
            s.barrier->wait(s.mates);
            for (long i = 0; i < rows && t >= 0; i++)
                std::copy_n((Cell::TWO ? x.dx : x.du)(s.row + i, t), x.X, later + i * x.X);
        }
    });
}

}  // namespace

#define EACH_CELL(run)                              \
    switch (x.kind) {                               \
        case 0: return run<Lstm<false, false>>(x);  \
        case 1: return run<Lstm<true, false>>(x);   \
        case 2: return run<Lstm<false, true>>(x);   \
        case 3: return run<Lstm<true, true>>(x);    \
        case 4: return run<Gru<false>>(x);          \
        case 5: return run<Gru<true>>(x);           \
    }

KERNEL(gated_cell, GatedCell) { EACH_CELL(forward) }
KERNEL(gated_cell_backward, GatedCell) { EACH_CELL(backward) }
