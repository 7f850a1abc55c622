// Softmax attention in tiles of queries and keys, forwards and backwards: memory O(T + S), whoever sees whom.
//
// Lanes are queries: scores lie as [key][query]. The softmax's maxima and sums run lane by lane, keys and values are
// read where they stand (any strides, or picked by a list), and every product is one small kernel,
// C[m][lanes] += sum_k a_mk B[k][lanes]. Scores are in units of log2. Dropout is a hash of (seed, row, head, query,
// key), so that the backward pass can draw it again.
#include "vec.h"
#include <cfloat>
#include <cmath>
#include <memory>
#include <utility>

struct Attention {
    Tensor<4> q, k, v; Tensor<2, const int64_t> q_pos, k_pos; Tensor<3, const int64_t> lists; Tensor<1> slopes;
    double scale; long causal, window, block, first, seed, keep;  // keep: of 2^24 weights; 0: no window, no blocks
    Tensor<4> y; Tensor<3> log_sum;
    long B, T, H, K, S, G, V, q_rows, k_rows, list_rows, blocks, listed, threads;
};

struct AttentionBackward {
    Tensor<4> q, k, v; Tensor<2, const int64_t> q_pos, k_pos; Tensor<3, const int64_t> lists; Tensor<1> slopes;
    double scale; long causal, window, block, first, seed, keep;
    Tensor<4> y; Tensor<3> log_sum; Tensor<4> dy, dq, dk, dv;  // dk, dv: zeros, one or more copies of the batch
    long B, T, H, K, S, G, V, q_rows, k_rows, list_rows, blocks, listed, copies, threads;
};

namespace {

constexpr long TILE = 64, NO_DROPOUT = 1 << 24;
constexpr int WIDE = VW == 16 ? 4 : 2;  // vectors of a row that the small kernel keeps in registers
constexpr float NEVER = -FLT_MAX;       // the score of a key that is not seen

// ------------------------------------------------------------------------------------------------- small products

// With COLUMNS a_mk is a[k][m], else a[m][k]; a is given by pointers to its rows.
template <bool COLUMNS, int M, int N>
INL void block_product(const float* const* a, long m, long depth, const float* b, long ldb, float* c, long ldc, bool add) {
    vf sum[M][N];
    const float* rows[M];
    for (int i = 0; i < M; i++) {
        rows[i] = COLUMNS ? nullptr : a[m + i];
        for (int j = 0; j < N; j++) sum[i][j] = add ? ld(c + (m + i) * ldc + j * VW) : bc(0.f);
    }
    for (long k = 0; k < depth; k++) {
        vf right[N];
        for (int j = 0; j < N; j++) right[j] = ld(b + k * ldb + j * VW);
        for (int i = 0; i < M; i++) {
            const vf left = bc(COLUMNS ? a[k][m + i] : rows[i][k]);
            for (int j = 0; j < N; j++) sum[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < M; i++) for (int j = 0; j < N; j++) st(c + (m + i) * ldc + j * VW, sum[i][j]);
}

template <bool COLUMNS, int N>
void strip(const float* const* a, long rows, long depth, const float* b, long ldb, float* c, long ldc, bool add) {
    long m = 0;
    for (; m + 4 <= rows; m += 4) block_product<COLUMNS, 4, N>(a, m, depth, b, ldb, c, ldc, add);
    for (; m < rows; m++) block_product<COLUMNS, 1, N>(a, m, depth, b, ldb, c, ldc, add);
}

template <bool COLUMNS>
void product(const float* const* a, long rows, long depth, const float* b, long ldb, float* c, long ldc, long lanes, bool add) {
    long n = 0;
    for (; n + WIDE * VW <= lanes; n += WIDE * VW) strip<COLUMNS, WIDE>(a, rows, depth, b + n, ldb, c + n, ldc, add);
    for (; n < lanes; n += VW) strip<COLUMNS, 1>(a, rows, depth, b + n, ldb, c + n, ldc, add);
}

// -------------------------------------------------------------------------------------------------- who sees whom

struct Span {  // of the positions in a tile of keys
    int32_t low = INT32_MAX, high = -1;
    bool gaps = false;  // some key is nobody's
};

struct Keys {  // what a block of queries may look at
    std::vector<int32_t> at, place;  // positions, and indices (empty: all, in order)
    std::vector<Span> spans;
    bool rising = true;

    void measure() {
        for (size_t s = 0; s < at.size(); s += TILE) {
            Span span;
            for (size_t j = s; j < std::min(at.size(), s + TILE); j++) {
                span.gaps |= at[j] < 0;
                if (at[j] >= 0) span.low = std::min(span.low, at[j]), span.high = std::max(span.high, at[j]);
            }
            if (s) rising &= span.low >= spans.back().low && span.high >= spans.back().high;
            spans.push_back(span);
        }
    }
};

struct Queries {  // a tile of them
    long row, t, count;
    const Keys* keys;
    int32_t at[TILE], low, high;
};

enum Sight { NONE, SOME, ALL };

template <class X> struct Map {
    const X& x;
    std::vector<Keys> keys;
    std::vector<std::pair<long, long>> tiles;  // of queries: where one begins, how many they are; none crosses a block
    long block_size;

    explicit Map(const X& x) : x(x) {
        block_size = x.lists ? (x.T + x.blocks - 1) / x.blocks : x.T;
        for (long start = 0; start < x.T; start += block_size)
            for (long t = start; t < std::min(x.T, start + block_size); t += TILE)
                tiles.push_back({t, std::min({TILE, x.T - t, start + block_size - t})});
        keys.resize(x.lists ? x.list_rows * x.blocks : x.k_rows);
        for (size_t i = 0; i < keys.size(); i++) {
            auto& at = keys[i].at;
            const int64_t* from = x.lists ? x.lists(i / x.blocks, i % x.blocks) : x.k_pos(i);
            at.assign(from, from + (x.lists ? x.listed : x.S));
            if (x.lists) {  // in order, each once, nobody's left out
                std::sort(at.begin(), at.end());
                at.erase(std::unique(at.begin(), at.end()), at.end());
                at.erase(at.begin(), std::lower_bound(at.begin(), at.end(), 0));
                keys[i].place = at;
            }
            keys[i].measure();
        }
    }

    Queries queries(long b, long tile) const {
        Queries q;
        q.row = b, q.t = tiles[tile].first, q.count = tiles[tile].second;
        q.keys = &keys[x.lists ? (x.list_rows == 1 ? 0 : b) * x.blocks + q.t / block_size : x.k_rows == 1 ? 0 : b];
        const int64_t* at = x.q_pos(x.q_rows == 1 ? 0 : b) + q.t;
        q.low = INT32_MAX, q.high = INT32_MIN;
        for (long i = 0; i < TILE; i++) {
            q.at[i] = (int32_t)at[std::min(i, q.count - 1)];
            q.low = std::min(q.low, q.at[i]), q.high = std::max(q.high, q.at[i]);
        }
        return q;
    }

    Sight sight(const Queries& q, const Span& k) const {
        if (k.high < 0) return NONE;
        bool some = true, all = !k.gaps, near = true, all_near = true;
        if (x.causal) some = k.low <= q.high, all = all && k.high <= q.low;
        if (x.window) {
            near = q.low - k.high < x.window && k.low - q.high < x.window;
            all_near = q.high - k.low < x.window && k.high - q.low < x.window;
        }
        if (x.block) {
            near = near && k.low / x.block <= q.high / x.block && k.high / x.block >= q.low / x.block;
            all_near = all_near && k.low / x.block == q.high / x.block && k.high / x.block == q.low / x.block;
        }
        if (!some || !(near || k.low < x.first)) return NONE;
        return all && (all_near || k.high < x.first) ? ALL : SOME;
    }

    // The tiles of keys that a tile of queries visits, and whether it sees all of each.
    std::vector<std::pair<long, Sight>> visits(const Queries& q) const {
        const auto& spans = q.keys->spans;
        long low = 0, high = (long)spans.size();
        if (q.keys->rising) {  // look only where something can be seen: a window's cost must not grow with the length
            long least = 0, most = INT32_MAX;
            if (x.window) least = q.low - x.window + 1, most = q.high + x.window - 1;
            if (x.block) least = std::max(least, q.low / x.block * x.block);
            if (x.causal) most = std::min<long>(most, q.high);
            auto before = [&](const Span& s) { return s.high < least; };
            auto until = [&](const Span& s) { return s.low <= most; };
            low = std::partition_point(spans.begin(), spans.end(), before) - spans.begin();
            high = std::partition_point(spans.begin(), spans.end(), until) - spans.begin();
        }
        std::vector<std::pair<long, Sight>> found;
        for (long j = 0; j < std::min(low, (long)spans.size()) && spans[j].low < x.first; j++)
            if (Sight s = sight(q, spans[j])) found.push_back({j, s});
        for (long j = low; j < high; j++) if (Sight s = sight(q, spans[j])) found.push_back({j, s});
        return found;
    }

    // Which of a vector of queries see the key that stands at `at`.
    vi sees(vi q, int32_t at) const {
        vi seen = (vi){} - (at >= 0);
        if (x.causal) seen &= q >= at;
        if (at >= x.first) {
            if (x.window) seen &= (q - at < (int32_t)x.window) & (at - q < (int32_t)x.window);
            if (x.block) seen &= q / (int32_t)x.block == at / (int32_t)x.block;
        }
        return seen;
    }
};

// ------------------------------------------------------------------------------------------------------ the tiles

uint32_t mix(uint32_t x) {  // Wellons' lowbias32
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

template <class X> struct Tile {  // what one thread works on: queries, keys, and their scores
    const X& x;
    const Map<X>& map;
    const Keys* from;
    long lanes, keys, start;  // whole vectors of queries; keys, and the first of them
    float slope;
    int32_t at[TILE];
    uint32_t draw[TILE];  // dropout's hash, up to the query
    const float *k[TILE], *v[TILE];
    float scores[TILE * TILE], other[TILE * TILE];

    Tile(const X& x, const Map<X>& map) : x(x), map(map) {}

    void take(const Queries& q, long h) {
        from = q.keys;
        lanes = (q.count + VW - 1) / VW * VW;
        memcpy(at, q.at, sizeof at);
        slope = x.slopes ? x.slopes[h] * LOG2E : 0;
        if (x.keep == NO_DROPOUT) return;
        const uint32_t row = mix(mix((uint32_t)x.seed) ^ (uint32_t)(q.row * x.H + h));
        for (long i = 0; i < TILE; i++) draw[i] = mix(row + (uint32_t)(q.t + i));
    }

    long place(long j) const { return from->place.empty() ? start + j : from->place[start + j]; }

    void look_at(const Queries& q, long h, long tile) {
        start = tile * TILE;
        keys = std::min(TILE, (long)from->at.size() - start);
        const long g = h / (x.H / x.G);
        for (long j = 0; j < keys; j++) k[j] = x.k(q.row, place(j), g), v[j] = x.v(q.row, place(j), g);
    }

    void score(const float* q_columns, Sight sight) {
        product<false>(k, keys, x.K, q_columns, TILE, scores, TILE, lanes, false);
        if (sight == ALL && !x.slopes) return;
        for (long j = 0; j < keys; j++) for (long i = 0; i < lanes; i += VW) {
            const int32_t key = from->at[start + j];
            vi q;
            memcpy(&q, at + i, sizeof q);
            vf s = ld(scores + j * TILE + i);
            if (x.slopes) s -= slope * vabs(__builtin_convertvector(q - key, vf));
            if (sight != ALL) s = map.sees(q, key) ? s : bc(NEVER);
            st(scores + j * TILE + i, s);
        }
    }

    // A key that is not seen weighs exactly nothing, though nothing else be seen either.
    vf weight(vf score, vf top, Sight sight) const {
        const vf w = vexp2n(score - top);
        return sight == ALL ? w : (score == NEVER ? bc(0.f) : w);
    }

    vf kept(long j, long i) const {  // 0, or 1 / (1 - dropout)
        vu d;
        memcpy(&d, draw + i, sizeof d);
        d ^= (uint32_t)place(j) * 0x9e3779b9u;
        d ^= d >> 16, d *= 0x7feb352du, d ^= d >> 15, d *= 0x846ca68bu, d ^= d >> 16;
        return d >> 8 < (uint32_t)x.keep ? bc((float)NO_DROPOUT / (float)x.keep) : bc(0.f);
    }
};

long whole(long n) { return (n + VW - 1) / VW * VW; }

// Rows [count][width] as columns [width][TILE], times a factor; other lanes are zero.
void columns(const float* x, long stride, long count, long width, float factor, float* to) {
    memset(to, 0, width * TILE * sizeof(float));
    for (long i = 0; i < count; i++) for (long c = 0; c < width; c++) to[c * TILE + i] = x[i * stride + c] * factor;
}

// Rows [count][width], each filled up with zeros to whole vectors.
void padded(const float* x, long stride, long count, long width, float* to) {
    for (long i = 0; i < count; i++, to += whole(width)) {
        memcpy(to, x + i * stride, width * sizeof(float));
        memset(to + width, 0, (whole(width) - width) * sizeof(float));
    }
}

void attend(const Attention& x, Tile<Attention>& tile, const Queries& q, long h, float* q_columns, float* out) {
    float top[TILE], sum[TILE] = {};
    std::fill(top, top + TILE, NEVER);
    tile.take(q, h);
    columns(x.q(q.row, q.t, h), x.q.stride[1], q.count, x.K, (float)x.scale * LOG2E, q_columns);
    memset(out, 0, x.V * TILE * sizeof(float));
    for (auto [at, sight] : tile.map.visits(q)) {
        tile.look_at(q, h, at);
        tile.score(q_columns, sight);
        for (long i = 0; i < tile.lanes; i += VW) {
            float* s = tile.scores + i;
            const vf was = ld(top + i);
            vf now = was, total = bc(0.f);
            for (long j = 0; j < tile.keys; j++) now = vmax(now, ld(s + j * TILE));
            for (long j = 0; j < tile.keys; j++) {
                vf w = tile.weight(ld(s + j * TILE), now, sight);
                total += w;
                if (x.keep != NO_DROPOUT) w *= tile.kept(j, i);
                st(s + j * TILE, w);
            }
            const vf left = vexp2n(was - now);
            st(top + i, now);
            st(sum + i, ld(sum + i) * left + total);
            for (long c = 0; c < x.V; c++) st(out + c * TILE + i, ld(out + c * TILE + i) * left);
        }
        product<true>(tile.v, x.V, tile.keys, tile.scores, TILE, out, TILE, tile.lanes, true);
    }
    for (long i = 0; i < q.count; i++) {
        const float over = sum[i] == 0 ? 0 : 1 / sum[i];
        float* y = x.y(q.row, q.t + i, h);
        for (long c = 0; c < x.V; c++) y[c] = out[c * TILE + i] * over;
        x.log_sum(q.row, h)[q.t + i] = sum[i] == 0 ? FLT_MAX : top[i] + std::log2(sum[i]);
    }
}

struct Scratch {
    std::vector<float> held;
    float *q_columns, *dy_columns, *q_rows, *dy_rows, *dq_columns, *added;

    explicit Scratch(const AttentionBackward& x) {
        const long K = TILE * whole(x.K), V = TILE * whole(x.V);
        held.resize(3 * K + 2 * V + std::max(K, V));
        q_columns = held.data(), dy_columns = q_columns + K, q_rows = dy_columns + V, dy_rows = q_rows + K;
        dq_columns = dy_rows + V, added = dq_columns + K;
    }
};

// to[key j] += sum over queries of weights[j][query] rows[query]
void add_to_keys(const Tile<AttentionBackward>& tile, long queries, const float* weights, const float* rows, long width,
                 float* added, float* to, long stride) {
    const float* w[TILE];
    for (long j = 0; j < tile.keys; j++) w[j] = weights + j * TILE;
    product<false>(w, tile.keys, queries, rows, whole(width), added, whole(width), whole(width), false);
    for (long j = 0; j < tile.keys; j++, added += whole(width)) {
        float* key = to + tile.place(j) * stride;
        for (long c = 0; c < width; c += VW) stn(key + c, ldn(key + c, width - c) + ld(added + c), width - c);
    }
}

void attend_backward(const AttentionBackward& x, Tile<AttentionBackward>& tile, const Queries& q, long h, long copy,
                     const Scratch& s) {
    const long g = h / (x.H / x.G), b = q.row;
    float log_sum[TILE], mean[TILE] = {};  // mean: of a weight's gradient under the weights, which is sum_c dy y
    std::fill(log_sum, log_sum + TILE, FLT_MAX);
    for (long i = 0; i < q.count; i++) {
        const float *dy = x.dy(b, q.t + i, h), *y = x.y(b, q.t + i, h);
        log_sum[i] = x.log_sum(b, h)[q.t + i];
        for (long c = 0; c < x.V; c++) mean[i] += dy[c] * y[c];
    }
    tile.take(q, h);
    columns(x.q(b, q.t, h), x.q.stride[1], q.count, x.K, (float)x.scale * LOG2E, s.q_columns);
    columns(x.dy(b, q.t, h), x.dy.stride[1], q.count, x.V, 1, s.dy_columns);
    padded(x.q(b, q.t, h), x.q.stride[1], q.count, x.K, s.q_rows);
    padded(x.dy(b, q.t, h), x.dy.stride[1], q.count, x.V, s.dy_rows);
    memset(s.dq_columns, 0, x.K * TILE * sizeof(float));
    for (auto [at, sight] : tile.map.visits(q)) {
        tile.look_at(q, h, at);
        tile.score(s.q_columns, sight);
        product<false>(tile.v, tile.keys, x.V, s.dy_columns, TILE, tile.other, TILE, tile.lanes, false);
        for (long j = 0; j < tile.keys; j++) for (long i = 0; i < tile.lanes; i += VW) {
            float *score = tile.scores + j * TILE + i, *d = tile.other + j * TILE + i;
            const vf w = tile.weight(ld(score), ld(log_sum + i), sight);
            const vf kept = x.keep == NO_DROPOUT ? bc(1.f) : tile.kept(j, i);
            st(score, w * kept);
            st(d, w * (ld(d) * kept - ld(mean + i)) * (float)x.scale);
        }
        add_to_keys(tile, q.count, tile.scores, s.dy_rows, x.V, s.added, x.dv(copy + b, 0, g), x.dv.stride[1]);
        add_to_keys(tile, q.count, tile.other, s.q_rows, x.K, s.added, x.dk(copy + b, 0, g), x.dk.stride[1]);
        product<true>(tile.k, x.K, tile.keys, tile.other, TILE, s.dq_columns, TILE, tile.lanes, true);
    }
    for (long i = 0; i < q.count; i++)
        for (long c = 0; c < x.K; c++) x.dq(b, q.t + i, h)[c] = s.dq_columns[c * TILE + i];
}

}  // namespace

KERNEL(attention, Attention) {
    const Map<Attention> map(x);
    const long tiles = (long)map.tiles.size(), heads = x.B * x.H;
    const int team_size = (int)std::min(x.threads, heads * tiles);
    #pragma omp parallel num_threads(team_size)
    {
        const auto tile = std::make_unique<Tile<Attention>>(x, map);
        std::vector<float> held(TILE * (x.K + x.V));
        #pragma omp for schedule(dynamic)
        for (long i = 0; i < heads * tiles; i++) {  // the last tiles first: among causal ones they see most
            const Queries q = map.queries(i % heads / x.H, tiles - 1 - i / heads);
            attend(x, *tile, q, i % x.H, held.data(), held.data() + TILE * x.K);
        }
    }
}

// A thread has a group of keys to itself, so that none adds where another does; where there are more threads than
// groups, each group has several copies of its gradients, and copy c gets every c-th tile of queries.
KERNEL(attention_backward, AttentionBackward) {
    const Map<AttentionBackward> map(x);
    const long copies = x.copies / x.B, heads = x.H / x.G;
    const int team_size = (int)std::min(x.threads, x.copies * x.G);
    #pragma omp parallel num_threads(team_size)
    {
        const auto tile = std::make_unique<Tile<AttentionBackward>>(x, map);
        const Scratch scratch(x);
        #pragma omp for schedule(dynamic)
        for (long i = 0; i < x.copies * x.G; i++) {
            const long copy = i % copies, b = i / copies / x.G, g = i / copies % x.G;
            for (long h = g * heads; h < (g + 1) * heads; h++)
                for (long of = copy; of < (long)map.tiles.size(); of += copies)
                    attend_backward(x, *tile, map.queries(b, of), h, copy * x.B, scratch);
        }
    }
}
