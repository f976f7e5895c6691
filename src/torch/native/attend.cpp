// Attention over keys and values that lie in blocks, for f32 on the processor.
//
// A block holds 16 positions of every key head. Keys lie transposed inside a block, [head][dim][16], so
// that 16 scores grow side by side in registers; values lie [head][16][dim]. Queries that read the same
// leading blocks (the ids of a context, or the rollouts of a group) are computed as one tile, so that such
// a block comes from memory once.
//
// The numbers of a query are summed in one order whatever stands beside it: its result does not depend on
// the batch, bit for bit.
//
// Compiled once for every instruction set (VARIANT names the result); native.rs chooses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

namespace {

constexpr int BLOCK = 16;
// Queries whose sums stand in registers at once; most queries of a tile, if a row has not more of its own;
// most scores of a tile, so that they stay in the cache.
constexpr int TOGETHER = 6;
constexpr int64_t TILE_QUERIES = 4 * TOGETHER;
constexpr int64_t TILE_SCORES = 1 << 16;
// Query heads that may share a key head.
constexpr int MOST_GROUP = 64;
// Leading blocks that two sequences must share to stand in one tile.
constexpr int64_t WORTH_SHARING = 4;
// Multiplications below which threads cost more than they bring.
constexpr int64_t WORTH_THREADS = 1 << 19;

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(32), aligned(4), may_alias));

inline Eight load(const float *p) { return *(const Eight *)p; }
inline void save(float *p, Eight x) { *(Eight *)p = x; }
inline Eight all(float x) { return Eight{x, x, x, x, x, x, x, x}; }

// exp(x) for x <= 0: 2^n times a polynomial (Cephes' expf), relative error below 2e-7.
inline Eight exp_of(Eight x) {
    const Eight low = all(-87.0f), magic = all(12582912.0f);
    x = x < low ? low : x;
    Eight shifted = x * all(1.44269504088896341f) + magic;
    Eight n = shifted - magic;
    Eight r = x - n * all(0.693359375f) - n * all(-2.12194440e-4f);
    Eight p = all(1.9875691500e-4f);
    p = p * r + all(1.3981999507e-3f);
    p = p * r + all(8.3334519073e-3f);
    p = p * r + all(4.1665795894e-2f);
    p = p * r + all(1.6666665459e-1f);
    p = p * r + all(5.0000001201e-1f);
    p = p * r * r + r + all(1.0f);
    return (Eight)((Ints)p + ((Ints)shifted << 23));
}

// Scores of M queries [M][dim] against a block of keys [dim][16]; `line` floats from query to query.
template <int M>
void score(const float *queries, const float *keys, int dim, float *scores, int64_t line) {
    Eight sums[M][2];
    for (int m = 0; m < M; m++) sums[m][0] = sums[m][1] = all(0.0f);
    for (int d = 0; d < dim; d++) {
        Eight left = load(keys + d * BLOCK), right = load(keys + d * BLOCK + 8);
        for (int m = 0; m < M; m++) {
            Eight q = all(queries[m * dim + d]);
            sums[m][0] += q * left;
            sums[m][1] += q * right;
        }
    }
    for (int m = 0; m < M; m++) {
        save(scores + m * line, sums[m][0]);
        save(scores + m * line + 8, sums[m][1]);
    }
}

// Adds the first `count` values [count][dim] of a block, weighted, to M sums [M][dim].
template <int M>
void gather(const float *weights, int64_t line, const float *values, int dim, int count, float *sums) {
    int c = 0;
    for (; c + 16 <= dim; c += 16) {
        Eight s[M][2];
        for (int m = 0; m < M; m++) {
            s[m][0] = load(sums + m * dim + c);
            s[m][1] = load(sums + m * dim + c + 8);
        }
        for (int t = 0; t < count; t++) {
            Eight left = load(values + t * dim + c), right = load(values + t * dim + c + 8);
            for (int m = 0; m < M; m++) {
                Eight w = all(weights[m * line + t]);
                s[m][0] += w * left;
                s[m][1] += w * right;
            }
        }
        for (int m = 0; m < M; m++) {
            save(sums + m * dim + c, s[m][0]);
            save(sums + m * dim + c + 8, s[m][1]);
        }
    }
    for (; c < dim; c += 8) {
        Eight s[M];
        for (int m = 0; m < M; m++) s[m] = load(sums + m * dim + c);
        for (int t = 0; t < count; t++) {
            Eight value = load(values + t * dim + c);
            for (int m = 0; m < M; m++) s[m] += all(weights[m * line + t]) * value;
        }
        for (int m = 0; m < M; m++) save(sums + m * dim + c, s[m]);
    }
}

#define FOR_EACH_COUNT(X) X(1) X(2) X(3) X(4) X(5) X(6)

void score_some(int count, const float *q, const float *k, int dim, float *s, int64_t line) {
    switch (count) {
#define CASE(M) case M: return score<M>(q, k, dim, s, line);
        FOR_EACH_COUNT(CASE)
#undef CASE
    }
}

void gather_some(int count, const float *w, int64_t line, const float *v, int dim, int n, float *s) {
    switch (count) {
#define CASE(M) case M: return gather<M>(w, line, v, dim, n, s);
        FOR_EACH_COUNT(CASE)
#undef CASE
    }
}

void score_all(int count, const float *q, const float *k, int dim, float *s, int64_t line) {
    for (int m = 0; m < count; m += TOGETHER)
        score_some(std::min(count - m, TOGETHER), q + m * dim, k, dim, s + m * line, line);
}

void gather_all(int count, const float *w, int64_t line, const float *v, int dim, int n, float *s) {
    for (int m = 0; m < count; m += TOGETHER)
        gather_some(std::min(count - m, TOGETHER), w + m * line, line, v, dim, n, s + m * dim);
}

void prefetch(const float *block, int dim) {
    for (int i = 0; i < dim; i++) __builtin_prefetch(block + i * BLOCK);
}

// Turns the first `length` scores into weights that add up to the returned sum; zeros up to `end`.
float weigh(float *scores, int64_t length, int64_t end) {
    int64_t whole = (length + 7) / 8 * 8, even = length / 8 * 8;
    for (int64_t t = length; t < whole; t++) scores[t] = -INFINITY;
    Eight top = load(scores);
    for (int64_t t = 8; t < whole; t += 8) {
        Eight x = load(scores + t);
        top = x > top ? x : top;
    }
    float highest = top[0];
    for (int i = 1; i < 8; i++) highest = std::max(highest, top[i]);
    Eight sum = all(0.0f), peak = all(highest);
    for (int64_t t = 0; t < even; t += 8) {
        Eight x = exp_of(load(scores + t) - peak);
        save(scores + t, x);
        sum += x;
    }
    if (even < whole) {
        save(scores + even, exp_of(load(scores + even) - peak));
        for (int64_t t = length; t < whole; t++) scores[t] = 0.0f;
        sum += load(scores + even);
    }
    for (int64_t t = whole; t < end; t++) scores[t] = 0.0f;
    float total = 0.0f;
    for (int i = 0; i < 8; i++) total += sum[i];
    return total;
}

}  // namespace

extern "C" {

// `count` query rows from `row` on; row i sees the first `past + i + 1` positions of the blocks that stand
// at `table` in the tables.
struct Span {
    int64_t row, count, past, table;
};

struct Attention {
    const float *queries;  // [rows][heads][dim], `query_line` floats from row to row
    int64_t query_line;
    const float *keys;    // [blocks][key heads][dim][16]
    const float *values;  // [blocks][key heads][16][dim]
    const Span *spans;
    int64_t span_count;
    const int32_t *tables;
    float *out;  // [rows][heads][dim]
    int32_t heads, key_heads, dim, threads;
};

// dim is a multiple of 8.
void JOIN(palimpsest_attend_, VARIANT)(const Attention *a) {
    const int dim = a->dim, kv = a->key_heads, group = a->heads / kv;
    const int64_t stride = int64_t(kv) * dim * BLOCK;
    const float scale = 1.0f / std::sqrt(float(dim));

    struct Row {
        int64_t row, length;
        const int32_t *table;
    };
    struct Tile {
        int64_t first, count, common;  // rows, and the leading blocks that all of them read
    };
    std::vector<Row> rows;
    int64_t longest = 0, work = 0;
    for (int64_t s = 0; s < a->span_count; s++) {
        const Span &span = a->spans[s];
        for (int64_t i = 0; i < span.count; i++) {
            int64_t length = span.past + i + 1;
            rows.push_back({span.row + i, length, a->tables + span.table});
            longest = std::max(longest, length);
            work += length * a->heads * dim;
        }
    }
    auto blocks = [](int64_t length) { return (length + BLOCK - 1) / BLOCK; };
    const int64_t line = blocks(longest) * BLOCK;
    const int64_t fitting = std::min(TILE_QUERIES, TILE_SCORES / std::max<int64_t>(line, 1));
    const int64_t most_rows = std::max<int64_t>(fitting / group, 1);
    std::vector<Tile> tiles;
    for (int64_t r = 0; r < int64_t(rows.size()); r++) {
        const Row &row = rows[r];
        const int64_t own = blocks(row.length);
        if (!tiles.empty() && tiles.back().count < most_rows) {
            Tile &tile = tiles.back();
            const int32_t *first = rows[tile.first].table;
            if (row.table == first) {  // the next id of the same context
                tile.count++;
                tile.common = own;
                continue;
            }
            int64_t common = 0, most = std::min(tile.common, own);
            while (common < most && first[common] == row.table[common]) common++;
            // What the new row gains, the others must not lose.
            if (common >= WORTH_SHARING && (tile.count == 1 || 2 * common >= tile.common)) {
                tile.count++;
                tile.common = common;
                continue;
            }
        }
        tiles.push_back({r, 1, own});
    }

    const int64_t tasks = int64_t(tiles.size()) * kv;
    const bool threaded = a->threads > 1 && tasks > 1 && work > WORTH_THREADS;
    (void)threaded;
#pragma omp parallel num_threads(a->threads) if (threaded)
    {
        std::vector<float> queries(most_rows * group * dim), sums(most_rows * group * dim);
        std::vector<float> scores(most_rows * group * line);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) {
            const Tile &tile = tiles[task / kv];
            const int head = int(task % kv), count = int(tile.count) * group;
            const float *keys = a->keys + int64_t(head) * dim * BLOCK;
            const float *values = a->values + int64_t(head) * dim * BLOCK;
            for (int m = 0; m < count; m++) {
                const Row &row = rows[tile.first + m / group];
                const float *q = a->queries + row.row * a->query_line + (head * group + m % group) * dim;
                for (int d = 0; d < dim; d++) queries[m * dim + d] = q[d] * scale;
            }
            const int32_t *shared = rows[tile.first].table;
            // Later tiles of a context find its blocks in the cache.
            const bool cold = tile.first == 0 || rows[tile.first - 1].table != shared;
            for (int64_t b = 0; b < tile.common; b++) {
                if (cold) prefetch(keys + shared[std::min(b + 2, tile.common - 1)] * stride, dim);
                score_all(count, queries.data(), keys + shared[b] * stride, dim,
                          scores.data() + b * BLOCK, line);
            }
            float totals[MOST_GROUP];
            for (int64_t r = 0; r < tile.count; r++) {
                const Row &row = rows[tile.first + r];
                const int64_t own = blocks(row.length), end = std::max(own, tile.common) * BLOCK;
                float *s = scores.data() + r * group * line;
                for (int64_t b = tile.common; b < own; b++) {
                    prefetch(keys + row.table[std::min(b + 2, own - 1)] * stride, dim);
                    score_all(group, queries.data() + r * group * dim, keys + row.table[b] * stride, dim,
                              s + b * BLOCK, line);
                }
                for (int g = 0; g < group; g++)
                    totals[r * group + g] = weigh(s + g * line, row.length, end);
            }
            std::fill(sums.begin(), sums.end(), 0.0f);
            int64_t most = 0;
            for (int64_t r = 0; r < tile.count; r++) most = std::max(most, rows[tile.first + r].length);
            for (int64_t b = 0; b < tile.common; b++) {
                if (cold) prefetch(values + shared[std::min(b + 2, tile.common - 1)] * stride, dim);
                int n = int(std::min<int64_t>(BLOCK, most - b * BLOCK));
                gather_all(count, scores.data() + b * BLOCK, line, values + shared[b] * stride, dim, n,
                           sums.data());
            }
            for (int64_t r = 0; r < tile.count; r++) {
                const Row &row = rows[tile.first + r];
                const int64_t own = blocks(row.length);
                for (int64_t b = tile.common; b < own; b++) {
                    prefetch(values + row.table[std::min(b + 2, own - 1)] * stride, dim);
                    int n = int(std::min<int64_t>(BLOCK, row.length - b * BLOCK));
                    gather_all(group, scores.data() + r * group * line + b * BLOCK, line,
                               values + row.table[b] * stride, dim, n, sums.data() + r * group * dim);
                }
                for (int g = 0; g < group; g++) {
                    float *to = a->out + (row.row * a->heads + head * group + g) * dim;
                    const float *from = sums.data() + (r * group + g) * dim;
                    for (int d = 0; d < dim; d++) to[d] = from[d] / totals[r * group + g];
                }
            }
        }
    }
}

struct Writing {
    const float *keys;  // [rows][key heads][dim], `key_line` floats from row to row
    int64_t key_line;
    const float *values;
    int64_t value_line;
    float *key_blocks;  // as in Attention
    float *value_blocks;
    const int64_t *rows;  // for each entry its row and its slot: block * 16 + place in the block
    const int64_t *slots;
    int64_t count;
    int32_t key_heads, dim;
};

void JOIN(palimpsest_write_, VARIANT)(const Writing *w) {
    const int dim = w->dim;
    for (int64_t i = 0; i < w->count; i++) {
        const int64_t row = w->rows[i], block = w->slots[i] / BLOCK, place = w->slots[i] % BLOCK;
        for (int h = 0; h < w->key_heads; h++) {
            const int64_t at = (block * w->key_heads + h) * dim * BLOCK;
            const float *key = w->keys + row * w->key_line + h * dim;
            for (int d = 0; d < dim; d++) w->key_blocks[at + d * BLOCK + place] = key[d];
            std::memcpy(w->value_blocks + at + place * dim, w->values + row * w->value_line + h * dim,
                        dim * sizeof(float));
        }
    }
}

}  // extern "C"
