// Scores with keys, and sums of values, that are halfs. Included after a set's simd.h.
#ifndef ES_KERNELS_GENERIC_ATTENTION_HALFS_H
#define ES_KERNELS_GENERIC_ATTENTION_HALFS_H

#include <stdint.h>

#include "kernels/generic/attention_view.h"
#include "kernels/generic/unroll.h"

// Scores of n_heads queries (n_heads, key_size) with a block's keys, from scores[h * ES_KV_CHUNK].
SIMD void score_halfs(const int n_heads, const es_attention_span *span, const key_block *block,
                      const float *queries, float *scores) {
    const int64_t size = span->key_size;
    const uint16_t *keys = (const uint16_t *)block->keys;
    f32x16 even[4], odd[4];
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        even[h] = odd[h] = f32_zero();
    }
    for (int64_t d = 0; d < size; d += 2) {
        __builtin_prefetch(block->ahead_keys + 32 * d);
        __builtin_prefetch(block->ahead_values + 32 * d);
        const f32x16 line = f16_load(keys + 16 * d);
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            even[h] = f32_fma(line, f32_splat(queries[h * size + d]), even[h]);
        }
        if (d + 1 == size) {
            break;
        }
        const f32x16 next = f16_load(keys + 16 * d + 16);
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            odd[h] = f32_fma(next, f32_splat(queries[h * size + d + 1]), odd[h]);
        }
    }
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        const f32x16 sum = f32_add(even[h], odd[h]);
        f32_store(scores + h * ES_KV_CHUNK, f32_mul(sum, f32_splat(span->scale)));
    }
}

// The value row of a position, from element d on.
static inline const uint16_t *value_at(const es_attention_span *span, int32_t position, int64_t d) {
    const int64_t row =
        (int64_t)span->table[position / ES_KV_BLOCK] * ES_KV_BLOCK + position % ES_KV_BLOCK;
    return (const uint16_t *)span->v_pool + row * span->value_size + d;
}

// Elements d .. d + 16 * n_tiles - 1 of o, for n_heads queries from number `head` on.
SIMD void add_tiles(const int n_heads, const int n_tiles, const chunk_view *chunk, int head,
                    int64_t d, es_attention_partial *partials) {
    f32x16 o[16];
    UNROLL
    for (int i = 0; i < n_heads * n_tiles; i++) {
        o[i] = f32_zero();
    }
    for (int32_t at = chunk->first; at < chunk->end;) {
        const uint16_t *v = value_at(chunk->span, at, d);
        const float *weight = &chunk->scores[head][at - chunk->start];
        const int32_t block_end = at - at % ES_KV_BLOCK + ES_KV_BLOCK;
        const int32_t end = block_end < chunk->end ? block_end : chunk->end;
        for (; at < end; at++, weight++, v += chunk->span->value_size) {
            UNROLL
            for (int t = 0; t < n_tiles; t++) {
                const f32x16 tile = f16_load(v + 16 * t);
                UNROLL
                for (int h = 0; h < n_heads; h++) {
                    const f32x16 p = f32_splat(weight[h * ES_KV_CHUNK]);
                    o[t * n_heads + h] = f32_fma(p, tile, o[t * n_heads + h]);
                }
                // Reading p again for the next tile is cheaper than the registers to keep it in.
                FORGET(weight);
            }
        }
    }
    UNROLL
    for (int i = 0; i < n_heads * n_tiles; i++) {
        f32_store(partials[head + i % n_heads].o + d + 16 * (i / n_heads), o[i]);
    }
}

// The last elements of value rows that are no multiple of 16, n_left of them from d on.
static void add_rest(const chunk_view *chunk, int head, int64_t d, int64_t n_left,
                     es_attention_partial *partials) {
    f32x16 o = f32_zero();
    for (int32_t at = chunk->first; at < chunk->end; at++) {
        const f32x16 tile = f16_load_part(value_at(chunk->span, at, d), n_left);
        o = f32_fma(f32_splat(chunk->scores[head][at - chunk->start]), tile, o);
    }
    f32_store_part(partials[head].o + d, o, n_left);
}

// o of n_heads queries: as many tiles at once as there are registers for.
SIMD void add_halfs(const int n_heads, const chunk_view *chunk, int head,
                    es_attention_partial *partials) {
    const int64_t size = chunk->span->value_size;
    int64_t d = 0;
    while (4 * n_heads <= ACCUMULATORS && d + 64 <= size) {
        add_tiles(n_heads, 4, chunk, head, d, partials);
        d += 64;
    }
    for (; d + 32 <= size; d += 32) {
        add_tiles(n_heads, 2, chunk, head, d, partials);
    }
    for (; d + 16 <= size; d += 16) {
        add_tiles(n_heads, 1, chunk, head, d, partials);
    }
    for (int h = 0; h < n_heads && d < size; h++) {
        add_rest(chunk, head + h, d, size - d, partials);
    }
}

#endif
