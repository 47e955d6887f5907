// Scores with keys, and sums of values, that are integers of 8 or 4 bits with a scale for each 32
// elements. Included after a set's simd.h. `type` is a constant once all is inlined.
//
// No element is scaled: the dot of 32 integers is, and the weight that meets 32 of them.
#ifndef ES_KERNELS_GENERIC_ATTENTION_INTEGERS_H
#define ES_KERNELS_GENERIC_ATTENTION_INTEGERS_H

#include <stdint.h>

#include "kernels/generic/attention_view.h"
#include "kernels/generic/rows.h"
#include "kernels/generic/unroll.h"

// 16 integers: of keys, 16 tokens' elements 2i + half of a group; of values, elements 16 * half on
// of token i.
SIMD f32x16 load_integers(const es_kv_type type, const uint8_t *group, int64_t i, const int half) {
    if (type == ES_KV_Q8_0) {
        return i8_load(group + 32 * i + 16 * half);
    }
    return half == 0 ? i4_load_low(group + 16 * i) : i4_load_high(group + 16 * i);
}

// Adds n elements of a group, 32 at most, to the sums that scores[h * ES_KV_CHUNK] hold.
SIMD void score_group(const int n_heads, const es_kv_type type, const key_block *group,
                      const uint16_t *scales, const float *queries, int64_t stride, int64_t n,
                      float *scores) {
    f32x16 even[4], odd[4];
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        even[h] = odd[h] = f32_zero();
    }
    const int64_t line = es_kv_group_bytes(type) / 16; // bytes of two elements
    const uint8_t *keys = group->keys;
    for (int64_t i = 0; 2 * i < n; i++) {
        __builtin_prefetch(group->ahead_keys + line * i);
        __builtin_prefetch(group->ahead_values + line * i);
        const f32x16 first = load_integers(type, keys, i, 0);
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            even[h] = f32_fma(first, f32_splat(queries[h * stride + 2 * i]), even[h]);
        }
        if (2 * i + 1 == n) {
            break;
        }
        FORGET(keys); // one line at a time: no registers are left for two
        const f32x16 second = load_integers(type, keys, i, 1);
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            odd[h] = f32_fma(second, f32_splat(queries[h * stride + 2 * i + 1]), odd[h]);
        }
    }
    const f32x16 d = f16_load(scales);
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        const f32x16 sum = f32_load(scores + h * ES_KV_CHUNK);
        f32_store(scores + h * ES_KV_CHUNK, f32_fma(d, f32_add(even[h], odd[h]), sum));
    }
}

SIMD void score_integers(const int n_heads, const es_kv_type type, const es_attention_span *span,
                         const key_block *block, const float *queries, float *scores) {
    const int64_t size = span->key_size, n_bytes = es_kv_group_bytes(type);
    const int64_t scale_bytes = es_kv_scale_bytes(size);
    const uint16_t *scales = (const uint16_t *)block->keys;
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        f32_store(scores + h * ES_KV_CHUNK, f32_zero());
    }
    for (int64_t g = 0; g * ES_KV_GROUP < size; g++) {
        const int64_t at = scale_bytes + g * n_bytes, d = g * ES_KV_GROUP;
        const key_block group = {block->keys + at, block->ahead_keys + at,
                                 block->ahead_values + at};
        score_group(n_heads, type, &group, scales + g * ES_KV_BLOCK, queries + d, size,
                    size - d < ES_KV_GROUP ? size - d : ES_KV_GROUP, scores);
    }
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        float *line = scores + h * ES_KV_CHUNK;
        f32_store(line, f32_mul(f32_load(line), f32_splat(span->scale)));
    }
}

static inline const uint8_t *value_block(const es_attention_span *span, int64_t n_bytes,
                                         int32_t position) {
    return span->v_pool + span->table[position / ES_KV_BLOCK] * n_bytes;
}

// The weights of n_heads queries times the tokens' scales of a group, at [h * ES_KV_CHUNK]. Slots
// that are not visible give what nobody reads.
SIMD void scale_weights(const int n_heads, const chunk_view *chunk, int head, int64_t group,
                        int64_t n_bytes, float *scaled) {
    const int32_t first = chunk->first / ES_KV_BLOCK * ES_KV_BLOCK;
    for (int32_t at = first; at < chunk->end; at += ES_KV_BLOCK) {
        const uint16_t *scales = (const uint16_t *)value_block(chunk->span, n_bytes, at);
        const f32x16 d = f16_load(scales + group * ES_KV_BLOCK);
        const int32_t token = at - chunk->start;
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            const f32x16 p = f32_load(&chunk->scores[head + h][token]);
            f32_store(scaled + h * ES_KV_CHUNK + token, f32_mul(p, d));
        }
    }
}

// The sums of one group of elements, for n_heads queries from number `head` on.
SIMD void add_group(const int n_heads, const es_kv_type type, const chunk_view *chunk, int head,
                    int64_t group, es_attention_partial *partials) {
    const int64_t size = chunk->span->value_size, d = group * ES_KV_GROUP;
    const int64_t n_bytes = es_kv_block_bytes(type, size);
    const int64_t offset = es_kv_scale_bytes(size) + group * es_kv_group_bytes(type);
    float scaled[4 * ES_KV_CHUNK];
    scale_weights(n_heads, chunk, head, group, n_bytes, scaled);
    f32x16 low[4], high[4];
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        low[h] = high[h] = f32_zero();
    }
    for (int32_t at = chunk->first; at < chunk->end;) {
        const uint8_t *block = value_block(chunk->span, n_bytes, at) + offset;
        const float *weight = scaled + at - chunk->start;
        const int32_t block_end = at - at % ES_KV_BLOCK + ES_KV_BLOCK;
        const int32_t end = block_end < chunk->end ? block_end : chunk->end;
        for (; at < end; at++, weight++) {
            const f32x16 first = load_integers(type, block, at % ES_KV_BLOCK, 0);
            UNROLL
            for (int h = 0; h < n_heads; h++) {
                low[h] = f32_fma(f32_splat(weight[h * ES_KV_CHUNK]), first, low[h]);
            }
            // Reading weights again is cheaper than the registers to keep them, and two lines, in.
            FORGET(weight);
            FORGET(block);
            const f32x16 second = load_integers(type, block, at % ES_KV_BLOCK, 1);
            UNROLL
            for (int h = 0; h < n_heads; h++) {
                high[h] = f32_fma(f32_splat(weight[h * ES_KV_CHUNK]), second, high[h]);
            }
        }
    }
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        store_at(partials[head + h].o + d, 0, size - d, low[h]);
        if (size - d > 16) {
            store_at(partials[head + h].o + d, 16, size - d, high[h]);
        }
    }
}

SIMD void add_integers(const int n_heads, const es_kv_type type, const chunk_view *chunk, int head,
                       es_attention_partial *partials) {
    for (int64_t g = 0; g * ES_KV_GROUP < chunk->span->value_size; g++) {
        add_group(n_heads, type, chunk, head, g, partials);
    }
}

#endif
