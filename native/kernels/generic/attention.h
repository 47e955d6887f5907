// Attention of one query row over one chunk of cached keys and values, for all query heads that
// share them: lanes are tokens in q.k, and value elements in p.v. Included after a set's simd.h.
//
// Slots outside the visible range may hold anything, NaN too. Their scores are selected away and
// their values never touched.
#ifndef ES_KERNELS_GENERIC_ATTENTION_H
#define ES_KERNELS_GENERIC_ATTENTION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/generic/math.h"
#include "kernels/generic/rows.h"
#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

enum {
    // Query heads that one pass over a block serves.
    HEADS = SIMD_REGISTERS >= 32 ? 4
    : SIMD_REGISTERS >= 8        ? 3
                                 : 1,
    ACCUMULATORS = SIMD_REGISTERS * 3 / 4,
    GROUP = 8, // query heads whose scores are held at a time
};

// One chunk's part of a span, and the scores, then weights, of a group of queries.
typedef struct {
    const es_attention_span *span;
    int32_t start; // the chunk's first position
    int32_t first; // its visible positions: start <= first < end
    int32_t end;
    float scores[GROUP][ES_KV_CHUNK];
} chunk_view;

// How many of n heads to serve at once: even shares.
static int heads_at_once(int n) {
    const int n_passes = (n + HEADS - 1) / HEADS;
    return (n + n_passes - 1) / n_passes;
}

// Calls f with n_heads, 1 .. HEADS, as a constant.
#define WITH_HEADS(n_heads, f, ...)                                                                \
    do {                                                                                           \
        if (HEADS == 1 || (n_heads) == 1) {                                                        \
            f(1, __VA_ARGS__);                                                                     \
        } else if ((n_heads) == 2) {                                                               \
            f(2, __VA_ARGS__);                                                                     \
        } else if (HEADS == 3 || (n_heads) == 3) {                                                 \
            f(3, __VA_ARGS__);                                                                     \
        } else {                                                                                   \
            f(4, __VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

// --- scores --------------------------------------------------------------------------------------

typedef struct {
    const uint16_t *keys;         // (key_size, ES_KV_BLOCK)
    const uint16_t *ahead_keys;   // what memory should fetch meanwhile,
    const uint16_t *ahead_values; // as many lines of each as the keys have
} key_block;

// Scores of n_heads queries (n_heads, key_size) with a block's keys, from scores[h * ES_KV_CHUNK].
SIMD void score_block(const int n_heads, const es_attention_span *span, const key_block *block,
                      const float *queries, float *scores) {
    const int64_t size = span->key_size;
    f32x16 even[4], odd[4];
    UNROLL
    for (int h = 0; h < n_heads; h++) {
        even[h] = odd[h] = f32_zero();
    }
    for (int64_t d = 0; d < size; d += 2) {
        __builtin_prefetch(block->ahead_keys + 16 * d);
        __builtin_prefetch(block->ahead_values + 16 * d);
        const f32x16 line = f16_load(block->keys + 16 * d);
        UNROLL
        for (int h = 0; h < n_heads; h++) {
            even[h] = f32_fma(line, f32_splat(queries[h * size + d]), even[h]);
        }
        if (d + 1 == size) {
            break;
        }
        const f32x16 next = f16_load(block->keys + 16 * d + 16);
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

// Scores of n queries with the visible blocks of the chunk. A block is in the nearest cache when
// further heads read it; memory fetches keys two blocks ahead, and the values that come next.
static void score_chunk(chunk_view *chunk, const float *queries, int n) {
    const es_attention_span *span = chunk->span;
    const int64_t key_block_size = (int64_t)span->key_size * ES_KV_BLOCK;
    const int64_t value_block_size = (int64_t)span->value_size * ES_KV_BLOCK;
    const int together = heads_at_once(n);
    for (int32_t i = chunk->first / ES_KV_BLOCK; i * ES_KV_BLOCK < chunk->end; i++) {
        const int32_t later = (i + 2) * ES_KV_BLOCK < span->end ? i + 2 : i;
        const key_block block = {
            .keys = span->k_pool + span->table[i] * key_block_size,
            .ahead_keys = span->k_pool + span->table[later] * key_block_size,
            .ahead_values = span->v_pool + span->table[i] * value_block_size,
        };
        const int32_t token = i * ES_KV_BLOCK - chunk->start;
        for (int h = 0; h < n; h += together) {
            const int n_heads = n - h < together ? n - h : together;
            const float *q = queries + (int64_t)h * span->key_size;
            WITH_HEADS(n_heads, score_block, span, &block, q, &chunk->scores[h][token]);
        }
    }
}

// --- softmax -------------------------------------------------------------------------------------

// Turns one query's scores into exp(score - m), 0 where not visible; gives m and l.
static void weigh_chunk(const chunk_view *chunk, float *scores, es_attention_partial *partial) {
    const es_attention_span *span = chunk->span;
    const int32_t first_block = chunk->first / ES_KV_BLOCK * ES_KV_BLOCK;
    f32x16 largest = f32_splat(-INFINITY);
    for (int32_t at = first_block; at < chunk->end; at += ES_KV_BLOCK) {
        float *line = scores + at - chunk->start;
        f32x16 score = f32_load(line);
        if (span->soft_cap != 0.0f) {
            score = f32_soft_cap(score, span->soft_cap);
        }
        const mask16 visible =
            mask_except(mask_first(chunk->end - at), mask_first(chunk->first - at));
        score = f32_select(visible, score, f32_splat(-INFINITY));
        f32_store(line, score);
        largest = f32_max(largest, score);
    }
    partial->m = f32_reduce_max(largest);
    f32x16 sum = f32_zero();
    for (int32_t at = first_block; at < chunk->end; at += ES_KV_BLOCK) {
        float *line = scores + at - chunk->start;
        const f32x16 weight = f32_exp(f32_sub(f32_load(line), f32_splat(partial->m)));
        f32_store(line, weight);
        sum = f32_add(sum, weight);
    }
    partial->l = f32_reduce_add(sum);
}

// --- values --------------------------------------------------------------------------------------

// The value row of a position, from element d on.
static inline const uint16_t *value_at(const es_attention_span *span, int32_t position, int64_t d) {
    const int64_t row =
        (int64_t)span->table[position / ES_KV_BLOCK] * ES_KV_BLOCK + position % ES_KV_BLOCK;
    return span->v_pool + row * span->value_size + d;
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
SIMD void add_values(const int n_heads, const chunk_view *chunk, int head,
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

// --- the table's functions -----------------------------------------------------------------------

static void attention_chunk(const es_attention_span *span, int64_t index, const float *queries,
                            int64_t n_queries, es_attention_partial *partials) {
    chunk_view chunk; // member by member: an initialiser would clear the scores too
    chunk.span = span;
    chunk.start = (int32_t)(index * ES_KV_CHUNK);
    chunk.first = span->first > chunk.start ? span->first : chunk.start;
    chunk.end = span->end - chunk.start < ES_KV_CHUNK ? span->end : chunk.start + ES_KV_CHUNK;
    for (int64_t i = 0; i < n_queries && chunk.first >= chunk.end; i++) {
        partials[i].m = -INFINITY;
        partials[i].l = 0.0f;
        memset(partials[i].o, 0, (size_t)span->value_size * sizeof *partials[i].o);
    }
    for (int64_t from = 0; from < n_queries && chunk.first < chunk.end; from += GROUP) {
        const int n = n_queries - from < GROUP ? (int)(n_queries - from) : GROUP;
        score_chunk(&chunk, queries + from * span->key_size, n);
        for (int h = 0; h < n; h++) {
            weigh_chunk(&chunk, chunk.scores[h], partials + from + h);
        }
        const int together = heads_at_once(n);
        for (int h = 0; h < n; h += together) {
            const int n_heads = n - h < together ? n - h : together;
            WITH_HEADS(n_heads, add_values, &chunk, h, partials + from);
        }
    }
}

static float exp_of_one(float x) { return f32_reduce_max(f32_exp(f32_splat(x))); }

static void attention_merge(es_attention_partial *a, const es_attention_partial *b, int64_t n) {
    if (b->l == 0.0f) { // empty: weights of visible tokens add up to 1 at least
        return;
    }
    const float m = a->m > b->m ? a->m : b->m;
    const float fa = exp_of_one(a->m - m);
    const float fb = exp_of_one(b->m - m);
    a->m = m;
    a->l = f32_reduce_max(f32_fma(f32_splat(b->l), f32_splat(fb), f32_splat(a->l * fa)));
    for (int64_t i = 0; i < n; i += 16) {
        const f32x16 scaled = f32_mul(load_at(a->o, i, n), f32_splat(fa));
        store_at(a->o, i, n, f32_fma(load_at(b->o, i, n), f32_splat(fb), scaled));
    }
}

static void attention_finish(const es_attention_partial *a, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_div(load_at(a->o, i, n), f32_splat(a->l)));
    }
}

#undef WITH_HEADS

#endif
