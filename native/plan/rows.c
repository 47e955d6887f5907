// Row operations: everything that works on one row at a time, one worker a row.
#include "plan/executor.h"

static void rms_norm(const es_executor *executor, const es_row_op *op, int64_t row) {
    const float *x = es_slot_row(executor, op->a, row);
    float *out = es_slot_row(executor, op->out, row);
    const float *weight = executor->plan.vectors[op->index].data;
    const int64_t width = executor->plan.slot_widths[op->out];
    for (int64_t at = 0; at < width; at += op->group) {
        executor->kernels->rms_norm(x + at, weight, op->group, op->factor, out + at);
    }
}

static void rope(const es_executor *executor, const es_row_op *op, int64_t row) {
    const es_rope *spec = &executor->plan.ropes[op->index];
    const float *table = executor->rope_tables[op->index] + row * 2 * spec->n_pairs;
    const float *x = es_slot_row(executor, op->a, row);
    float *out = es_slot_row(executor, op->out, row);
    const int64_t width = executor->plan.slot_widths[op->out];
    if (out != x) {
        executor->kernels->scale(x, 1.0f, width, out);
    }
    for (int64_t at = 0; at < width; at += op->group) {
        if (spec->interleaved) {
            executor->kernels->rope_interleaved(out + at, table, spec->n_pairs);
        } else {
            executor->kernels->rope_halves(out + at, table, spec->n_pairs);
        }
    }
}

static void embed(const es_executor *executor, const es_row_op *op, int64_t row) {
    const es_batch *batch = executor->batch;
    float *out = es_slot_row(executor, op->out, row);
    const int64_t width = executor->plan.slot_widths[op->out];
    if (batch->token_ids[row] < 0) { // given as an embedding, taken as it is
        executor->kernels->scale(batch->embeddings + row * width, 1.0f, width, out);
        return;
    }
    executor->kernels->weight_row(executor->plan.weights[op->index], batch->token_ids[row], out);
    if (op->factor != 1.0f) {
        executor->kernels->scale(out, op->factor, width, out);
    }
}

static void gate(const es_executor *executor, const es_row_op *op, int64_t row) {
    const float *a = es_slot_row(executor, op->a, row);
    const float *b = es_slot_row(executor, op->b, row);
    float *out = es_slot_row(executor, op->out, row);
    es_apply_gate(executor->kernels, op->index, a, b, executor->plan.slot_widths[op->out], out);
}

void es_apply_gate(const es_kernels *kernels, int32_t kind, const float *a, const float *b,
                   int64_t n, float *out) {
    switch (kind) {
    case ES_GATE_SILU:
        kernels->gated_silu(a, b, n, out);
        break;
    case ES_GATE_GELU_TANH:
        kernels->gated_gelu_tanh(a, b, n, out);
        break;
    default:
        kernels->gated_relu_squared(a, b, n, out);
        break;
    }
}

void es_store_key(es_executor *executor, int32_t cache, const float *k, int64_t row,
                  int64_t first_head, int64_t n_heads) {
    const es_cache_pool *pool = &executor->caches[cache];
    const int64_t block = executor->block_of_row[pool->spec.group * executor->plan.max_rows + row];
    const int64_t slot = executor->batch->positions[row] % ES_KV_BLOCK;
    for (int64_t head = 0; head < n_heads; head++) {
        uint8_t *into = es_key_block(executor, pool, first_head + head, block);
        executor->kernels->store_key((es_kv_type)pool->spec.type, k + head * pool->spec.key_size,
                                     pool->spec.key_size, into, slot);
    }
}

void es_store_value(es_executor *executor, int32_t cache, const float *v, int64_t row,
                    int64_t first_head, int64_t n_heads) {
    const es_cache_pool *pool = &executor->caches[cache];
    const int64_t block = executor->block_of_row[pool->spec.group * executor->plan.max_rows + row];
    const int64_t slot = executor->batch->positions[row] % ES_KV_BLOCK;
    for (int64_t head = 0; head < n_heads; head++) {
        uint8_t *into = es_value_block(executor, pool, first_head + head, block);
        executor->kernels->store_value((es_kv_type)pool->spec.type,
                                       v + head * pool->spec.value_size, pool->spec.value_size,
                                       into, slot);
    }
}

static void run_op(es_executor *executor, const es_row_op *op, int64_t row) {
    const es_kernels *kernels = executor->kernels;
    const int64_t width = op->out >= 0 ? executor->plan.slot_widths[op->out] : 0;
    switch (op->kind) {
    case ES_ROW_EMBED:
        embed(executor, op, row);
        break;
    case ES_ROW_SELECT:
        kernels->scale(es_slot_row(executor, op->a, executor->output_rows[row]), 1.0f, width,
                       es_slot_row(executor, op->out, row));
        break;
    case ES_ROW_RMS_NORM:
        rms_norm(executor, op, row);
        break;
    case ES_ROW_ROPE:
        rope(executor, op, row);
        break;
    case ES_ROW_STORE_KEY:
        es_store_key(executor, op->index, es_slot_row(executor, op->a, row), row, 0,
                     executor->caches[op->index].spec.n_kv_heads);
        break;
    case ES_ROW_STORE_VALUE:
        es_store_value(executor, op->index, es_slot_row(executor, op->a, row), row, 0,
                       executor->caches[op->index].spec.n_kv_heads);
        break;
    case ES_ROW_ADD:
        kernels->add(es_slot_row(executor, op->a, row), es_slot_row(executor, op->b, row), width,
                     es_slot_row(executor, op->out, row));
        break;
    case ES_ROW_SCALE:
        kernels->scale(es_slot_row(executor, op->a, row), op->factor, width,
                       es_slot_row(executor, op->out, row));
        break;
    case ES_ROW_SOFT_CAP:
        kernels->soft_cap(es_slot_row(executor, op->a, row), op->factor, width,
                          es_slot_row(executor, op->out, row));
        break;
    case ES_ROW_MOE_ROUTE:
        es_route(executor, op, row);
        break;
    case ES_ROW_MOE_SUM:
        es_sum_experts(executor, op, row);
        break;
    default:
        gate(executor, op, row);
        break;
    }
}

typedef struct {
    es_executor *executor;
    const es_region *region;
} rows_context;

static void rows_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const rows_context *c = context;
    const int64_t skipped = c->region->rows == ES_ROWS_HIDDEN ? c->executor->n_logits_rows : 0;
    (void)worker;
    for (int64_t row = skipped + first; row < skipped + end; row++) {
        for (int32_t i = 0; i < c->region->count; i++) {
            run_op(c->executor, &c->executor->plan.row_ops[c->region->first + i], row);
        }
    }
}

void es_run_rows(es_executor *executor, const es_region *region) {
    rows_context context = {executor, region};
    es_pool_run(executor->pool, rows_units, &context, es_region_rows(executor, region->rows), 4);
}
