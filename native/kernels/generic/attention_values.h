// Sums of values by queries' weights: lanes are elements, and a line of a token's elements serves
// a tile. Included after a set's simd.h. `n`, `n_lines`, `first_line` and `type` are constants once
// all is inlined.
#ifndef ES_KERNELS_GENERIC_ATTENTION_VALUES_H
#define ES_KERNELS_GENERIC_ATTENTION_VALUES_H

#include <stdint.h>
#include <string.h>

#include "kernels/generic/attention_tile.h"
#include "kernels/generic/rows.h"

// Some bytes of each token, of which 16 are in a block.
typedef struct {
    const uint8_t *pool; // those of the first token of block 0
    const int32_t *table;
    int64_t block_bytes;
    int64_t row_bytes; // from one token to the next
} token_rows;

// 32 elements of the tokens' values, two lines, or the last ones.
typedef struct {
    token_rows values;
    token_rows scales; // of integers
    token_rows ahead;  // keys: a share of those that memory should fetch meanwhile
    int32_t last;      // one past the last position whose keys anybody reads
    int32_t n_elements;
} value_slice;

static inline const uint8_t *row_of(const token_rows *rows, int32_t position) {
    return rows->pool + rows->table[position / ES_KV_BLOCK] * rows->block_bytes +
           position % ES_KV_BLOCK * rows->row_bytes;
}

SIMD f32x16 load_values(const es_kv_type type, const uint8_t *row, const int line) {
    switch (type) {
    case ES_KV_Q8_0:
        return i8_load(row + 16 * line);
    case ES_KV_Q4_0:
        return line == 0 ? i4_load_low(row) : i4_load_high(row);
    default:
        return f16_load((const uint16_t *)row + 16 * line);
    }
}

// Adds tokens [from, end), in order, to n_lines lines of n queries' o. The weights are those of the
// chunk's tokens, (n, ES_KV_CHUNK).
SIMD void add_lines(const int n, const int first_line, const int n_lines, const es_kv_type type,
                    const value_slice *slice, int32_t from, int32_t end, const float *weights,
                    float *const *o) {
    f32x16 sums[ACCUMULATORS];
    UNROLL
    for (int i = 0; i < n * n_lines; i++) {
        sums[i] = f32_load(o[i % n] + 16 * (first_line + i / n));
    }
    for (int32_t at = from; at < end;) {
        const uint8_t *row = row_of(&slice->values, at);
        const uint8_t *ahead =
            row_of(&slice->ahead, at + ES_KV_CHUNK < slice->last ? at + ES_KV_CHUNK : at);
        const float *weight = weights + at % ES_KV_CHUNK;
        const int32_t block_end = at - at % ES_KV_BLOCK + ES_KV_BLOCK;
        const int32_t stop = block_end < end ? block_end : end;
        for (; at < stop; at++, weight++, row += slice->values.row_bytes) {
            if (first_line == 0) {
                __builtin_prefetch(ahead);
                ahead += slice->ahead.row_bytes;
            }
            UNROLL
            for (int t = 0; t < n_lines; t++) {
                const f32x16 line = load_values(type, row, first_line + t);
                UNROLL
                for (int h = 0; h < n; h++) {
                    const f32x16 p = f32_splat(weight[h * ES_KV_CHUNK]);
                    sums[t * n + h] = f32_fma(p, line, sums[t * n + h]);
                }
                // Reading p again for the next line is cheaper than the registers to keep it in.
                FORGET(weight);
                FORGET(row);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n * n_lines; i++) {
        f32_store(o[i % n] + 16 * (first_line + i / n), sums[i]);
    }
}

// The last elements of rows of halfs that are no multiple of 16, after `first` others.
SIMD void add_rest(const int n, int64_t first, const value_slice *slice, int32_t from, int32_t end,
                   const float *weights, float *const *o) {
    for (int h = 0; h < n; h++, weights += ES_KV_CHUNK) {
        f32x16 sum = f32_load(o[h] + first);
        for (int32_t at = from; at < end; at++) {
            const uint16_t *row = (const uint16_t *)row_of(&slice->values, at) + first;
            const f32x16 line = f16_load_part(row, slice->n_elements - first);
            sum = f32_fma(f32_splat(weights[at % ES_KV_CHUNK]), line, sum);
        }
        f32_store(o[h] + first, sum);
    }
}

SIMD void add_rows(const int n, const es_kv_type type, const value_slice *slice, int32_t from,
                   int32_t end, const float *weights, float *const *o) {
    if (type == ES_KV_F16 && slice->n_elements < 32) {
        if (slice->n_elements >= 16) {
            add_lines(n, 0, 1, type, slice, from, end, weights, o);
        }
        add_rest(n, slice->n_elements / 16 * 16, slice, from, end, weights, o);
    } else if (2 * n <= ACCUMULATORS) {
        add_lines(n, 0, 2, type, slice, from, end, weights, o);
    } else {
        add_lines(n, 0, 1, type, slice, from, end, weights, o);
        add_lines(n, 1, 1, type, slice, from, end, weights, o);
    }
}

// Weights times the scales of a group of integers: no element is scaled. Tokens of a block that are
// not asked for give what nobody reads.
SIMD void scale_weights(const int n, const token_rows *scales, int32_t from, int32_t end,
                        const float *weights, float *scaled) {
    for (int32_t at = from - from % ES_KV_BLOCK; at < end; at += ES_KV_BLOCK) {
        const f32x16 d = f16_load((const uint16_t *)row_of(scales, at));
        UNROLL
        for (int h = 0; h < n; h++) {
            const int32_t token = h * ES_KV_CHUNK + at % ES_KV_CHUNK;
            f32_store(scaled + token, f32_mul(f32_load(weights + token), d));
        }
    }
}

// Elements [d, d + 32).
SIMD value_slice slice_of(const es_kv_type type, const query_group *group, int64_t d) {
    const es_attention_cache *cache = group->cache;
    const int64_t size = cache->value_size, key_bytes = es_kv_block_bytes(type, cache->key_size);
    const int64_t key_share = key_bytes / es_kv_groups(cache->key_size);
    token_rows values = {cache->v_pool + 2 * d, cache->table, es_kv_block_bytes(type, size),
                         2 * size};
    token_rows scales = values, ahead = values;
    if (type != ES_KV_F16) {
        const int64_t n_bytes = es_kv_group_bytes(type), slice = d / ES_KV_GROUP;
        values.pool = cache->v_pool + es_kv_scale_bytes(size) + slice * n_bytes;
        values.row_bytes = n_bytes / ES_KV_BLOCK;
        scales.pool = cache->v_pool + slice * ES_KV_BLOCK * (int64_t)sizeof(uint16_t);
        scales.row_bytes = sizeof(uint16_t);
    }
    ahead.pool = cache->k_pool + d / ES_KV_GROUP * key_share;
    ahead.block_bytes = key_bytes;
    ahead.row_bytes = key_share / ES_KV_BLOCK;
    return (value_slice){values, scales, ahead, group->last,
                         size - d < 32 ? (int32_t)(size - d) : 32};
}

// Adds tokens [from, end) to elements [d, d + 32) of the o of n queries, from number `h` on.
SIMD void add_tokens(const int n, const es_kv_type type, const query_group *group, int h, int64_t d,
                     int32_t from, int32_t end) {
    const value_slice slice = slice_of(type, group, d);
    const float *weights = group->scores[h];
    _Alignas(64) float scaled[TILE * ES_KV_CHUNK], part[TILE][32];
    float *o[TILE];
    if (type != ES_KV_F16) {
        scale_weights(n, &slice.scales, from, end, weights, scaled);
        weights = scaled;
    }
    const int is_part = slice.n_elements < 32;
    const size_t n_bytes = (size_t)slice.n_elements * sizeof(float);
    for (int i = 0; i < n; i++) {
        o[i] = is_part ? part[i] : group->partials[h + i].o + d;
        if (is_part) {
            memcpy(part[i], group->partials[h + i].o + d, n_bytes);
        }
    }
    add_rows(n, type, &slice, from, end, weights, o);
    for (int i = 0; i < n && is_part; i++) {
        memcpy(group->partials[h + i].o + d, part[i], n_bytes);
    }
}

// Of tokens [from, end) what each of n queries sees, one query at a time.
static __attribute__((noinline)) void add_alone(es_kv_type type, const query_group *group, int h,
                                                int n, int64_t d, int32_t from, int32_t end) {
    for (int i = h; i < h + n; i++) {
        const int32_t first = group->first[i] > from ? group->first[i] : from;
        const int32_t stop = group->end[i] < end ? group->end[i] : end;
        if (first >= stop) {
            continue;
        }
        switch (type) {
        case ES_KV_Q8_0:
            add_tokens(1, ES_KV_Q8_0, group, i, d, first, stop);
            break;
        case ES_KV_Q4_0:
            add_tokens(1, ES_KV_Q4_0, group, i, d, first, stop);
            break;
        default:
            add_tokens(1, ES_KV_F16, group, i, d, first, stop);
            break;
        }
    }
}

// Of a tile's queries each one's own tokens before those that all see, then these, then its own
// after them.
SIMD void add_tile(const int n, const es_kv_type type, const query_group *group, int h, int64_t d) {
    const int32_t from = most_of(group->first + h, n), end = least_of(group->end + h, n);
    const int32_t all = group->start + ES_KV_CHUNK;
    if (from >= end) {
        add_alone(type, group, h, n, d, group->start, all);
        return;
    }
    if (least_of(group->first + h, n) < from) {
        add_alone(type, group, h, n, d, group->start, from);
    }
    add_tokens(n, type, group, h, d, from, end);
    if (most_of(group->end + h, n) > end) {
        add_alone(type, group, h, n, d, end, all);
    }
}

// 32 elements at a time, so that the tiles find the lines of all tokens in the nearest cache.
SIMD void add_values(const es_kv_type type, const query_group *group) {
    const int64_t size = group->cache->value_size;
    for (int32_t i = 0; i < group->n; i++) {
        memset(group->partials[i].o, 0, (size_t)size * sizeof(float));
    }
    for (int64_t d = 0; d < size; d += 32) {
        for (const int32_t *tile = group->tiles; *tile < group->n; tile++) {
            WITH_TILE(tile[1] - tile[0], add_tile, type, group, *tile, d)
        }
    }
}

#endif
