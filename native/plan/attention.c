// Attention regions. A unit is a KV head and some rows, whose query heads go through its chunks of
// 128 tokens together; or one row's chunk, where rows are few.
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
    int64_t n_rows;   // of a unit, where rows are units
    int64_t n_chunks; // most chunks of a row, where chunks are units
    int64_t part;     // floats of a split partial: m, l, o
} attention_context;

// Some rows of one sequence, and some of the query heads that share a KV head.
typedef struct {
    int64_t row;
    int64_t n_rows;
    int64_t head;
    int64_t n_heads;
} query_range;

static es_attention_cache cache_of(const attention_context *c, int64_t row, int64_t kv_head) {
    const es_executor *executor = c->executor;
    const es_batch *batch = executor->batch;
    const int64_t table =
        (int64_t)c->pool->spec.group * batch->n_groups + executor->group_of_row[row];
    return (es_attention_cache){
        .k_pool = es_key_block(executor, c->pool, kv_head, 0),
        .v_pool = es_value_block(executor, c->pool, kv_head, 0),
        .table = batch->block_tables + table * batch->table_stride,
        .key_size = c->pool->spec.key_size,
        .value_size = c->pool->spec.value_size,
        .scale = c->attention->scale,
        .soft_cap = c->attention->soft_cap,
        .type = (es_kv_type)c->pool->spec.type,
    };
}

static es_attention_query query_of(const attention_context *c, int64_t row, int64_t head) {
    const int32_t end = c->executor->batch->positions[row] + 1;
    const int32_t window = c->attention->window;
    return (es_attention_query){
        .q = es_slot_row(c->executor, c->attention->q, row) + head * c->pool->spec.key_size,
        .first = window > 0 && end > window ? end - window : 0,
        .end = end,
    };
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
        executor->kernels->attention_merge(partial, &sink, 1, size);
    }
    float *out = es_slot_row(executor, c->attention->out, row) + head * size;
    executor->kernels->attention_finish(partial, size, out);
}

// The queries of a range that see a chunk are [first, end): later rows begin and end later.
static void seen_chunk(const es_attention_query *queries, int64_t n, int32_t start, int64_t *first,
                       int64_t *end) {
    *first = 0;
    *end = n;
    while (*first < n && queries[*first].end <= start) {
        ++*first;
    }
    while (*end > *first && queries[*end - 1].first >= start + ES_KV_CHUNK) {
        --*end;
    }
}

// All chunks that the queries of a range see, in order: a query's first is what others merge into.
static void whole_range(const attention_context *c, const query_range *range, int32_t worker) {
    const es_executor *executor = c->executor;
    const es_attention_cache cache = cache_of(c, range->row, range->head / c->group);
    const int64_t n = range->n_rows * range->n_heads, size = cache.value_size;
    const int64_t stride = es_padded(size, ES_LANES);
    float *own = executor->workers[worker].partials;
    float *next = own + ES_QUERIES_MAX * ES_HEAD_MAX;
    es_attention_query queries[ES_QUERIES_MAX];
    es_attention_partial merged[ES_QUERIES_MAX], partials[ES_QUERIES_MAX];
    for (int64_t i = 0; i < n; i++) {
        queries[i] = query_of(c, range->row + i / range->n_heads, range->head + i % range->n_heads);
    }
    const int32_t last = query_of(c, range->row + range->n_rows - 1, range->head).end;
    int32_t start = query_of(c, range->row, range->head).first / ES_KV_CHUNK * ES_KV_CHUNK;
    for (; start < last; start += ES_KV_CHUNK) {
        int64_t first, end;
        seen_chunk(queries, n, start, &first, &end);
        for (int64_t i = first; i < end; i++) {
            partials[i].o = (queries[i].first < start ? next : own) + i * stride;
        }
        executor->kernels->attention_chunk(&cache, start / ES_KV_CHUNK, queries + first,
                                           end - first, partials + first);
        int64_t begun = end; // those before it have chunks to merge with
        while (begun > first && queries[begun - 1].first >= start) {
            begun--;
            merged[begun] = partials[begun];
        }
        executor->kernels->attention_merge(merged + first, partials + first, begun - first, size);
    }
    for (int64_t i = 0; i < n; i++) {
        finish(c, &merged[i], range->row + i / range->n_heads, range->head + i % range->n_heads,
               next);
    }
}

// Rows of one sequence and KV head, as many queries at once as there is room for.
static void whole_rows(const attention_context *c, int64_t row, int64_t n_rows, int64_t kv_head,
                       int32_t worker) {
    for (int64_t from = 0; from < c->group; from += ES_QUERIES_MAX) {
        const int64_t left = c->group - from;
        const query_range range = {row, n_rows, kv_head * c->group + from,
                                   left < ES_QUERIES_MAX ? left : ES_QUERIES_MAX};
        whole_range(c, &range, worker);
    }
}

// Heads one after another: what one reads of its cache, its next rows read again.
static void whole_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const attention_context *c = context;
    const int32_t *group_of_row = c->executor->group_of_row;
    const int64_t all = c->executor->batch->n_rows;
    const int64_t n_ranges = (all + c->n_rows - 1) / c->n_rows;
    for (int64_t index = first; index < end; index++) {
        const int64_t from = index % n_ranges * c->n_rows;
        const int64_t stop = from + c->n_rows < all ? from + c->n_rows : all;
        for (int64_t row = from, next; row < stop; row = next) {
            for (next = row + 1; next < stop && group_of_row[next] == group_of_row[row];) {
                next++;
            }
            whole_rows(c, row, next - row, index / n_ranges, worker);
        }
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
        const es_attention_cache cache = cache_of(c, row, kv_head);
        const es_attention_query seen = query_of(c, row, 0);
        if (chunk * ES_KV_CHUNK >= seen.end || (chunk + 1) * ES_KV_CHUNK <= seen.first) {
            continue;
        }
        es_attention_query queries[ES_QUERIES_MAX];
        es_attention_partial partial[ES_QUERIES_MAX];
        for (int64_t from = 0; from < c->group; from += ES_QUERIES_MAX) {
            const int64_t n = c->group - from < ES_QUERIES_MAX ? c->group - from : ES_QUERIES_MAX;
            for (int64_t i = 0; i < n; i++) {
                const int64_t head = kv_head * c->group + from + i;
                queries[i] = query_of(c, row, head);
                partial[i].o = split_part(c, row, head, chunk) + 2;
            }
            executor->kernels->attention_chunk(&cache, chunk, queries, n, partial);
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
        const es_attention_query seen = query_of(c, row, head);
        const int64_t start = seen.first / ES_KV_CHUNK;
        float *at = split_part(c, row, head, start);
        es_attention_partial merged = {at[0], at[1], at + 2};
        for (int64_t chunk = start + 1; chunk * ES_KV_CHUNK < seen.end; chunk++) {
            at = split_part(c, row, head, chunk);
            const es_attention_partial next = {at[0], at[1], at + 2};
            executor->kernels->attention_merge(&merged, &next, 1, c->pool->spec.value_size);
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

// Rows of a unit: enough units for every thread to help, and no more queries than go at once.
static int64_t rows_at_once(const attention_context *c, int32_t n_threads) {
    const int64_t most = ES_QUERIES_MAX / c->group;
    const int64_t share = c->executor->batch->n_rows * c->n_kv_heads / (4 * n_threads);
    return share < 1 || most < 1 ? 1 : share < most ? share : most;
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
        c.n_rows = rows_at_once(&c, n_threads);
        const int64_t n_ranges = (n_rows + c.n_rows - 1) / c.n_rows;
        es_pool_run(executor->pool, whole_units, &c, n_ranges * c.n_kv_heads, 1);
    }
}
