// Scores of queries with keys: lanes are tokens, and a line of 16 tokens' elements serves a tile.
// Included after a set's simd.h. `n`, `half` and `type` are constants once all is inlined.
#ifndef ES_KERNELS_GENERIC_ATTENTION_SCORES_H
#define ES_KERNELS_GENERIC_ATTENTION_SCORES_H

#include <stdint.h>

#include "kernels/generic/attention_tile.h"

typedef struct {
    const uint8_t *keys;
    const uint8_t *ahead_keys;   // what memory should fetch meanwhile,
    const uint8_t *ahead_values; // as many lines of each as the keys have
} key_block;

// Bytes of two elements of 16 tokens.
static inline int64_t pair_bytes(es_kv_type type) {
    return type == ES_KV_F16 ? 64 : es_kv_group_bytes(type) / 16;
}

// Elements 2i + half of 16 tokens' keys.
SIMD f32x16 load_keys(const es_kv_type type, const uint8_t *keys, int64_t i, const int half) {
    switch (type) {
    case ES_KV_Q8_0:
        return i8_load(keys + 32 * i + 16 * half);
    case ES_KV_Q4_0:
        return half == 0 ? i4_load_low(keys + 16 * i) : i4_load_high(keys + 16 * i);
    default:
        return f16_load((const uint16_t *)keys + 32 * i + 16 * half);
    }
}

// Element 2i + half of the keys times that of each query.
SIMD void add_products(const int n, const es_kv_type type, const uint8_t *keys, int64_t i,
                       const int half, const float *q, f32x16 *sums) {
    const f32x16 line = load_keys(type, keys, i, half);
    UNROLL
    for (int h = 0; h < n; h++) {
        sums[h] = f32_fma(line, f32_splat(q[h * QUERY_STRIDE + 2 * i + half]), sums[h]);
    }
}

// Sums over even and over odd elements, of which there are `size` in all.
SIMD void dot_both(const int n, const es_kv_type type, const key_block *block, const float *q,
                   int64_t size, f32x16 *even, f32x16 *odd) {
    const int64_t line = pair_bytes(type);
    const uint8_t *keys = block->keys;
    UNROLL
    for (int h = 0; h < n; h++) {
        even[h] = odd[h] = f32_zero();
    }
    for (int64_t i = 0; i < size / 2; i++) {
        __builtin_prefetch(block->ahead_keys + line * i);
        __builtin_prefetch(block->ahead_values + line * i);
        add_products(n, type, keys, i, 0, q, even);
        FORGET(keys); // one line at a time: no registers are left for two
        add_products(n, type, keys, i, 1, q, odd);
    }
    if (size % 2 != 0) {
        add_products(n, type, keys, size / 2, 0, q, even);
    }
}

// Sums over even elements, or over odd ones.
SIMD void dot_half(const int n, const int half, const es_kv_type type, const key_block *block,
                   const float *q, int64_t size, f32x16 *sums) {
    UNROLL
    for (int h = 0; h < n; h++) {
        sums[h] = f32_zero();
    }
    UNROLL_TWICE
    for (int64_t i = 0; i < (size + 1 - half) / 2; i++) {
        if (half == 0) {
            __builtin_prefetch(block->ahead_keys + pair_bytes(type) * i);
            __builtin_prefetch(block->ahead_values + pair_bytes(type) * i);
        }
        add_products(n, type, block->keys, i, half, q, sums);
    }
}

// The dots of n queries' elements, from q on, with the keys'. Both sums are in registers at once,
// or one after the other: then they serve twice as many queries.
SIMD void dot_keys(const int n, const es_kv_type type, const key_block *block, const float *q,
                   int64_t size, float *even, f32x16 *sums) {
    f32x16 odd[TILE];
    if (2 * n <= ACCUMULATORS) {
        dot_both(n, type, block, q, size, sums, odd);
        UNROLL
        for (int h = 0; h < n; h++) {
            sums[h] = f32_add(sums[h], odd[h]);
        }
        return;
    }
    dot_half(n, 0, type, block, q, size, sums);
    UNROLL
    for (int h = 0; h < n; h++) {
        f32_store(even + h * ES_KV_BLOCK, sums[h]);
    }
    FORGET(even); // or the compiler keeps them, and not those that change, in registers
    dot_half(n, 1, type, block, q, size, odd);
    UNROLL
    for (int h = 0; h < n; h++) {
        sums[h] = f32_add(f32_load(even + h * ES_KV_BLOCK), odd[h]);
    }
}

SIMD void score_halfs(const int n, const es_attention_cache *cache, const key_block *block,
                      const float *q, float *even, float *scores) {
    f32x16 sums[TILE];
    dot_keys(n, ES_KV_F16, block, q, cache->key_size, even, sums);
    UNROLL
    for (int h = 0; h < n; h++) {
        f32_store(scores + h * ES_KV_CHUNK, f32_mul(sums[h], f32_splat(cache->scale)));
    }
}

// Of integers the dot of 32 is scaled, no element.
SIMD void score_integers(const int n, const es_kv_type type, const es_attention_cache *cache,
                         const key_block *block, const float *q, float *even, float *scores) {
    const int64_t size = cache->key_size, n_bytes = es_kv_group_bytes(type);
    const uint16_t *scales = (const uint16_t *)block->keys;
    UNROLL
    for (int h = 0; h < n; h++) {
        f32_store(scores + h * ES_KV_CHUNK, f32_zero());
    }
    for (int64_t d = 0; d < size; d += ES_KV_GROUP, scales += ES_KV_BLOCK) {
        const int64_t at = es_kv_scale_bytes(size) + d / ES_KV_GROUP * n_bytes;
        const key_block group = {block->keys + at, block->ahead_keys + at,
                                 block->ahead_values + at};
        const int64_t n_elements = size - d < ES_KV_GROUP ? size - d : ES_KV_GROUP;
        f32x16 sums[TILE];
        dot_keys(n, type, &group, q + d, n_elements, even, sums);
        const f32x16 scale = f16_load(scales);
        UNROLL
        for (int h = 0; h < n; h++) {
            float *line = scores + h * ES_KV_CHUNK;
            f32_store(line, f32_fma(scale, sums[h], f32_load(line)));
        }
    }
    UNROLL
    for (int h = 0; h < n; h++) {
        float *line = scores + h * ES_KV_CHUNK;
        f32_store(line, f32_mul(f32_load(line), f32_splat(cache->scale)));
    }
}

SIMD void score_tile(const int n, const es_kv_type type, query_group *group, const key_block *block,
                     int32_t h, int32_t token) {
    const float *q = group->q[h];
    float *scores = &group->scores[h][token];
    if (type == ES_KV_F16) {
        score_halfs(n, group->cache, block, q, group->even[0], scores);
    } else {
        score_integers(n, type, group->cache, block, q, group->even[0], scores);
    }
}

// All blocks of which any query sees a token. Memory fetches the values that come next, and keys
// two blocks ahead: from the processor's further caches, if values were read before.
SIMD void score_chunk(const es_kv_type type, query_group *group) {
    const es_attention_cache *cache = group->cache;
    const int64_t key_bytes = es_kv_block_bytes(type, cache->key_size);
    const int64_t value_bytes = es_kv_block_bytes(type, cache->value_size);
    const int32_t end = most_of(group->end, group->n);
    int32_t i = least_of(group->first, group->n) / ES_KV_BLOCK;
    for (; i * ES_KV_BLOCK < end; i++) {
        const int32_t later = (i + 2) * ES_KV_BLOCK < group->last ? i + 2 : i;
        const key_block block = {
            .keys = cache->k_pool + cache->table[i] * key_bytes,
            .ahead_keys = cache->k_pool + cache->table[later] * key_bytes,
            .ahead_values = cache->v_pool + cache->table[i] * value_bytes,
        };
        const int32_t token = i * ES_KV_BLOCK - group->start;
        for (const int32_t *tile = group->tiles; *tile < group->n; tile++) {
            WITH_TILE(tile[1] - tile[0], score_tile, type, group, &block, *tile, token)
        }
    }
}

#endif
