// Attention of several queries over one chunk of cached keys and values, a tile of them at a time:
// what they read is read and widened once for all. A query's result is its own whatever its tile.
// Included after a set's simd.h.
//
// Tokens that a query does not see may hold anything, NaN too. Their scores are selected away and
// their values never touched.
#ifndef ES_KERNELS_GENERIC_ATTENTION_H
#define ES_KERNELS_GENERIC_ATTENTION_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/generic/attention_scores.h"
#include "kernels/generic/attention_tile.h"
#include "kernels/generic/attention_values.h"
#include "kernels/generic/math.h"
#include "kernels/generic/rows.h"
#include "kernels/kernels.h"

// --- softmax -------------------------------------------------------------------------------------

// exp(x) of n lines of scores' distances to the largest, the bits of f32_exp. x <= 0, so that
// 2^(n + 64) is a normal number, by which p is multiplied in its exponent: one rounding is left.
// Where x is more, a NaN got lost on the way to the largest: NaN is the sum, and every product.
SIMD void exp_of_distances(const int n, f32x16 *x) {
    const f32x16 magic = f32_splat(0x1.8p23f + 64.0f); // n + 64 is in the low bits of the sum
    f32x16 t[EXP_MOST], shifted[EXP_MOST], whole[EXP_MOST], p[EXP_MOST];
    UNROLL
    for (int i = 0; i < n; i++) {
        t[i] = f32_max(x[i], f32_splat(-104.0f));
        shifted[i] = f32_add(f32_mul(t[i], f32_splat(0x1.715476p+0f)), magic);
        whole[i] = f32_sub(shifted[i], magic);
    }
    exp_of_fractions(n, t, whole, p);
    UNROLL
    for (int i = 0; i < n; i++) {
        const i32x16 grown = i32_add(f32_as_i32(p[i]), i32_shift_left(f32_as_i32(shifted[i]), 23));
        const f32x16 out = f32_mul(i32_as_f32(grown), f32_splat(0x1p-64f));
        x[i] = f32_select(f32_eq(x[i], x[i]), out, x[i]);
    }
}

static void cap_scores(float *line, const float *end, float cap) {
    for (; line < end; line += ES_KV_BLOCK) {
        f32_store(line, f32_soft_cap(f32_load(line), cap));
    }
}

// Selects -infinity for the tokens of a block that are not visible.
static void hide_scores(float *line, mask16 visible) {
    f32_store(line, f32_select(visible, f32_load(line), f32_splat(-INFINITY)));
}

// Turns n lines of scores into weights, and adds them to a sum.
SIMD f32x16 weigh_lines(const int n, float *line, float m, f32x16 sum) {
    f32x16 x[EXP_MOST];
    UNROLL
    for (int i = 0; i < n; i++) {
        x[i] = f32_sub(f32_load(line + 16 * i), f32_splat(m));
    }
    exp_of_distances(n, x);
    UNROLL
    for (int i = 0; i < n; i++) {
        f32_store(line + 16 * i, x[i]);
        sum = f32_add(sum, x[i]);
    }
    return sum;
}

// Turns query h's scores into exp(score - m), 0 where not visible; gives m and l.
static void weigh(query_group *group, int h, es_attention_partial *partial) {
    if (group->first[h] >= group->end[h]) {
        partial->m = -INFINITY;
        partial->l = 0.0f;
        return;
    }
    const int32_t first = group->first[h] - group->start, stop = group->end[h] - group->start;
    float *line = group->scores[h] + first / ES_KV_BLOCK * ES_KV_BLOCK;
    const float *end = group->scores[h] + stop;
    if (group->cache->soft_cap != 0.0f) {
        cap_scores(line, end, group->cache->soft_cap);
    }
    if (first % ES_KV_BLOCK != 0) {
        const mask16 hidden = mask_first(first % ES_KV_BLOCK);
        hide_scores(line, mask_except(mask_first(ES_KV_BLOCK), hidden));
    }
    if (stop % ES_KV_BLOCK != 0) {
        hide_scores(group->scores[h] + stop / ES_KV_BLOCK * ES_KV_BLOCK,
                    mask_first(stop % ES_KV_BLOCK));
    }
    f32x16 largest = f32_splat(-INFINITY);
    for (const float *at = line; at < end; at += ES_KV_BLOCK) {
        largest = f32_max(largest, f32_load(at));
    }
    partial->m = f32_reduce_max(largest);
    f32x16 sum = f32_zero();
    for (; line + ES_KV_BLOCK < end; line += 2 * ES_KV_BLOCK) {
        sum = weigh_lines(2, line, partial->m, sum);
    }
    if (line < end) {
        sum = weigh_lines(1, line, partial->m, sum);
    }
    partial->l = f32_reduce_add(sum);
}

// --- the table's functions -----------------------------------------------------------------------

SIMD void attend(const es_kv_type type, query_group *group) {
    score_chunk(type, group);
    for (int32_t i = 0; i < group->n; i++) {
        weigh(group, i, &group->partials[i]);
    }
    add_values(type, group);
}

static void attend_group(query_group *group) {
    switch (group->cache->type) {
    case ES_KV_Q8_0:
        attend(ES_KV_Q8_0, group);
        break;
    case ES_KV_Q4_0:
        attend(ES_KV_Q4_0, group);
        break;
    default:
        attend(ES_KV_F16, group);
        break;
    }
}

static void attention_chunk(const es_attention_cache *cache, int64_t chunk,
                            const es_attention_query *queries, int64_t n_queries,
                            es_attention_partial *partials) {
    query_group group; // member by member: an initialiser would clear the scores too
    group.cache = cache;
    group.start = (int32_t)(chunk * ES_KV_CHUNK);
    const int32_t end = group.start + ES_KV_CHUNK;
    for (int64_t from = 0; from < n_queries; from += group.n) {
        const int64_t left = n_queries - from;
        group.partials = partials + from;
        group.n = left < TOGETHER ? (int32_t)left : TOGETHER;
        group.last = 0;
        share_out(&group);
        for (int32_t i = 0; i < group.n; i++) {
            const es_attention_query *query = &queries[from + i];
            memcpy(group.q[i], query->q, (size_t)cache->key_size * sizeof(float));
            group.first[i] = query->first > group.start ? query->first : group.start;
            group.end[i] = query->end < end ? query->end : end;
            group.last = query->end > group.last ? query->end : group.last;
        }
        attend_group(&group);
    }
}

// Of 16 pairs at most what attention_merge multiplies l and o by; gives m.
static void merge_factors(es_attention_partial *a, const es_attention_partial *b, int64_t n,
                          float *fa, float *fb) {
    float m_a[16] = {0}, m_b[16] = {0}, m[16];
    for (int64_t i = 0; i < n; i++) {
        m_a[i] = a[i].m;
        m_b[i] = b[i].m;
    }
    const f32x16 most = f32_max(f32_load(m_a), f32_load(m_b));
    f32_store(m, most);
    f32_store(fa, f32_exp(f32_sub(f32_load(m_a), most)));
    f32_store(fb, f32_exp(f32_sub(f32_load(m_b), most)));
    for (int64_t i = 0; i < n; i++) {
        a[i].m = b[i].l == 0.0f ? a[i].m : m[i];
    }
}

static void attention_merge(es_attention_partial *a, const es_attention_partial *b, int64_t n,
                            int64_t size) {
    float fa[16], fb[16];
    for (int64_t i = 0; i < n; i++, a++, b++) {
        if (i % 16 == 0) {
            merge_factors(a, b, n - i < 16 ? n - i : 16, fa, fb);
        }
        if (b->l == 0.0f) { // empty: weights of visible tokens add up to 1 at least
            continue;
        }
        const f32x16 by_a = f32_splat(fa[i % 16]), by_b = f32_splat(fb[i % 16]);
        a->l = f32_reduce_max(f32_fma(f32_splat(b->l), by_b, f32_mul(f32_splat(a->l), by_a)));
        for (int64_t d = 0; d < size; d += 16) {
            const f32x16 scaled = f32_mul(load_at(a->o, d, size), by_a);
            store_at(a->o, d, size, f32_fma(load_at(b->o, d, size), by_b, scaled));
        }
    }
}

static void attention_finish(const es_attention_partial *a, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_div(load_at(a->o, i, n), f32_splat(a->l)));
    }
}

#endif
