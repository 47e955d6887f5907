// Attention regions: one row and KV head a unit, or one 128-token chunk where rows are few.
//
// Either way a row's chunks are computed alone and merged left to right: the same bits.
#include <math.h>
#include <string.h>

#include "plan/executor.h"

typedef struct {
    es_executor *executor;
    const es_attention *attention;
    const es_cache_pool *pool;
    int64_t n_kv_heads;
    int64_t group;    // query heads of a KV head
    int64_t n_chunks; // most chunks of a row, where chunks are units
    int64_t part;     // floats of a split partial: m, l, o
} attention_context;

static es_attention_span span_of(const attention_context *c, int64_t row, int64_t kv_head) {
    const es_executor *executor = c->executor;
    const es_batch *batch = executor->batch;
    const int64_t table =
        (int64_t)c->pool->spec.group * batch->n_groups + executor->group_of_row[row];
    const int32_t end = batch->positions[row] + 1;
    const int32_t window = c->attention->window;
    return (es_attention_span){
        .k_pool = es_key_block(executor, c->pool, kv_head, 0),
        .v_pool = es_value_block(executor, c->pool, kv_head, 0),
        .table = batch->block_tables + table * batch->table_stride,
        .first = window > 0 && end > window ? end - window : 0,
        .end = end,
        .key_size = c->pool->spec.key_size,
        .value_size = c->pool->spec.value_size,
        .scale = c->attention->scale,
        .soft_cap = c->attention->soft_cap,
        .type = (es_kv_type)c->pool->spec.type,
    };
}

static const float *query(const attention_context *c, int64_t row, int64_t kv_head) {
    return es_slot_row(c->executor, c->attention->q, row) +
           kv_head * c->group * c->pool->spec.key_size;
}

// Adds the head's sink, which has weight and no value, and writes o / l.
static void finish(const attention_context *c, es_attention_partial *partial, int64_t row,
                   int64_t head, float *zeros) {
    const es_executor *executor = c->executor;
    const int64_t size = c->pool->spec.value_size;
    if (c->attention->sinks >= 0) {
        memset(zeros, 0, (size_t)size * sizeof *zeros);
        const es_attention_partial sink = {executor->plan.vectors[c->attention->sinks].data[head],
                                           1.0f, zeros};
        executor->kernels->attention_merge(partial, &sink, size);
    }
    float *out = es_slot_row(executor, c->attention->out, row) + head * size;
    executor->kernels->attention_finish(partial, size, out);
}

// All chunks of one row and KV head, in order.
static void whole_unit(const attention_context *c, int64_t row, int64_t kv_head, int32_t worker) {
    const es_executor *executor = c->executor;
    const int64_t size = c->pool->spec.value_size;
    float *own = executor->workers[worker].partials;
    float *next = own + ES_QUERIES_MAX * ES_HEAD_MAX;
    es_attention_partial merged[ES_QUERIES_MAX], partial[ES_QUERIES_MAX];
    const es_attention_span span = span_of(c, row, kv_head);
    for (int64_t from = 0; from < c->group; from += ES_QUERIES_MAX) {
        const int64_t n = c->group - from < ES_QUERIES_MAX ? c->group - from : ES_QUERIES_MAX;
        const float *q = query(c, row, kv_head) + from * span.key_size;
        for (int64_t i = 0; i < n; i++) {
            merged[i] = (es_attention_partial){-INFINITY, 0.0f, own + i * ES_HEAD_MAX};
            partial[i] = (es_attention_partial){-INFINITY, 0.0f, next + i * ES_HEAD_MAX};
        }
        const int64_t first = span.first / ES_KV_CHUNK;
        for (int64_t chunk = first; chunk * ES_KV_CHUNK < span.end; chunk++) {
            es_attention_partial *into = chunk == first ? merged : partial;
            executor->kernels->attention_chunk(&span, chunk, q, n, into);
            for (int64_t i = 0; i < n && chunk > first; i++) {
                executor->kernels->attention_merge(&merged[i], &partial[i], size);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            finish(c, &merged[i], row, kv_head * c->group + from + i, next);
        }
    }
}

static void whole_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const attention_context *c = context;
    for (int64_t index = first; index < end; index++) {
        whole_unit(c, index / c->n_kv_heads, index % c->n_kv_heads, worker);
    }
}

static float *split_part(const attention_context *c, int64_t row, int64_t head, int64_t chunk) {
    const int64_t index = (row * c->attention->n_heads + head) * c->n_chunks + chunk;
    return c->executor->split + index * c->part;
}

static void chunk_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const attention_context *c = context;
    const es_executor *executor = c->executor;
    (void)worker;
    for (int64_t index = first; index < end; index++) {
        const int64_t chunk = index % c->n_chunks;
        const int64_t kv_head = index / c->n_chunks % c->n_kv_heads;
        const int64_t row = index / c->n_chunks / c->n_kv_heads;
        const es_attention_span span = span_of(c, row, kv_head);
        if (chunk * ES_KV_CHUNK >= span.end || (chunk + 1) * ES_KV_CHUNK <= span.first) {
            continue;
        }
        es_attention_partial partial[ES_QUERIES_MAX];
        for (int64_t from = 0; from < c->group; from += ES_QUERIES_MAX) {
            const int64_t n = c->group - from < ES_QUERIES_MAX ? c->group - from : ES_QUERIES_MAX;
            for (int64_t i = 0; i < n; i++) {
                partial[i].o = split_part(c, row, kv_head * c->group + from + i, chunk) + 2;
            }
            executor->kernels->attention_chunk(
                &span, chunk, query(c, row, kv_head) + from * span.key_size, n, partial);
            for (int64_t i = 0; i < n; i++) {
                partial[i].o[-2] = partial[i].m;
                partial[i].o[-1] = partial[i].l;
            }
        }
    }
}

static void merge_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const attention_context *c = context;
    const es_executor *executor = c->executor;
    for (int64_t index = first; index < end; index++) {
        const int64_t head = index % c->attention->n_heads;
        const int64_t row = index / c->attention->n_heads;
        const es_attention_span span = span_of(c, row, head / c->group);
        const int64_t start = span.first / ES_KV_CHUNK;
        float *at = split_part(c, row, head, start);
        es_attention_partial merged = {at[0], at[1], at + 2};
        for (int64_t chunk = start + 1; chunk * ES_KV_CHUNK < span.end; chunk++) {
            at = split_part(c, row, head, chunk);
            const es_attention_partial next = {at[0], at[1], at + 2};
            executor->kernels->attention_merge(&merged, &next, span.value_size);
        }
        finish(c, &merged, row, head, executor->workers[worker].partials);
    }
}

static int64_t most_chunks(const es_batch *batch) {
    int32_t last = 0;
    for (int32_t row = 0; row < batch->n_rows; row++) {
        last = batch->positions[row] > last ? batch->positions[row] : last;
    }
    return last / ES_KV_CHUNK + 1;
}

void es_run_attention(es_executor *executor, const es_region *region) {
    const es_attention *attention = &executor->plan.attentions[region->first];
    const es_cache_pool *pool = &executor->caches[attention->cache];
    attention_context c = {
        .executor = executor,
        .attention = attention,
        .pool = pool,
        .n_kv_heads = pool->spec.n_kv_heads,
        .group = attention->n_heads / pool->spec.n_kv_heads,
        .n_chunks = most_chunks(executor->batch),
        // 64-byte parts, so that no two workers write one line
        .part = es_padded(pool->spec.value_size + 2, ES_LANES),
    };
    const int64_t n_rows = executor->batch->n_rows;
    const int64_t wide = n_rows * c.n_kv_heads;
    const int64_t split = n_rows * attention->n_heads * c.n_chunks * c.part;
    const int32_t n_threads = es_pool_n_threads(executor->pool);
    if (n_threads > 1 && c.n_chunks > 1 && wide < 4 * n_threads && split <= ES_SPLIT_FLOATS) {
        es_pool_run(executor->pool, chunk_units, &c, wide * c.n_chunks, 1);
        es_pool_run(executor->pool, merge_units, &c, n_rows * attention->n_heads, 4);
    } else {
        es_pool_run(executor->pool, whole_units, &c, wide, 1);
    }
}
