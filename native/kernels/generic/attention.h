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

#include "kernels/generic/attention_halfs.h"
#include "kernels/generic/attention_integers.h"
#include "kernels/generic/math.h"
#include "kernels/generic/rows.h"
#include "kernels/kernels.h"

// --- scores --------------------------------------------------------------------------------------

SIMD void score_block(const int n_heads, const es_attention_span *span, const key_block *block,
                      const float *queries, float *scores) {
    switch (span->type) {
    case ES_KV_Q8_0:
        score_integers(n_heads, ES_KV_Q8_0, span, block, queries, scores);
        break;
    case ES_KV_Q4_0:
        score_integers(n_heads, ES_KV_Q4_0, span, block, queries, scores);
        break;
    default:
        score_halfs(n_heads, span, block, queries, scores);
        break;
    }
}

// Scores of n queries with the visible blocks of the chunk. A block is in the nearest cache when
// further heads read it; memory fetches keys two blocks ahead, and the values that come next.
static void score_chunk(chunk_view *chunk, const float *queries, int n) {
    const es_attention_span *span = chunk->span;
    const int64_t key_bytes = es_kv_block_bytes(span->type, span->key_size);
    const int64_t value_bytes = es_kv_block_bytes(span->type, span->value_size);
    const int together = heads_at_once(n);
    for (int32_t i = chunk->first / ES_KV_BLOCK; i * ES_KV_BLOCK < chunk->end; i++) {
        const int32_t later = (i + 2) * ES_KV_BLOCK < span->end ? i + 2 : i;
        const key_block block = {
            .keys = span->k_pool + span->table[i] * key_bytes,
            .ahead_keys = span->k_pool + span->table[later] * key_bytes,
            .ahead_values = span->v_pool + span->table[i] * value_bytes,
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

SIMD void add_values(const int n_heads, const chunk_view *chunk, int head,
                     es_attention_partial *partials) {
    switch (chunk->span->type) {
    case ES_KV_Q8_0:
        add_integers(n_heads, ES_KV_Q8_0, chunk, head, partials);
        break;
    case ES_KV_Q4_0:
        add_integers(n_heads, ES_KV_Q4_0, chunk, head, partials);
        break;
    default:
        add_halfs(n_heads, chunk, head, partials);
        break;
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
