// Linear regions: norm and quantise the input rows, then products and their epilogues by units.
#include "plan/executor.h"

enum { GATE_TILES = 2 };

typedef struct {
    es_executor *executor;
    const es_region *region;
    es_prepared *input; // shared, or null where each worker prepares its own
    int64_t n_rows;
    int64_t n_cols;
    int forms; // bits of es_activation_kind that the region's weights read
} linear_context;

static int forms_of(const es_executor *executor, const es_region *region) {
    int forms = 0;
    for (int32_t i = 0; i < region->count; i++) {
        forms |= es_forms_of(executor, &executor->plan.linears[region->first + i]);
    }
    return forms;
}

static void prepare_row(const linear_context *c, const es_prepared *into, int64_t row) {
    const es_executor *executor = c->executor;
    const float *x = es_slot_row(executor, c->region->x, row);
    if (c->region->norm >= 0) {
        float *normed = into->x + row * into->stride;
        executor->kernels->rms_norm(x, executor->plan.vectors[c->region->norm].data, c->n_cols,
                                    c->region->norm_epsilon, normed);
        x = normed;
    }
    es_prepare(executor->kernels, x, c->n_cols, c->forms, into, row);
}

static void prepare_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const linear_context *c = context;
    (void)worker;
    for (int64_t row = first; row < end; row++) {
        prepare_row(c, &c->executor->shared, row);
    }
}

static const es_prepared *worker_input(const linear_context *c, int32_t worker) {
    if (c->input != NULL) {
        return c->input;
    }
    es_worker *own = &c->executor->workers[worker];
    if (own->prepared != c->executor->region_serial) {
        for (int64_t row = 0; row < c->n_rows; row++) {
            prepare_row(c, &own->input, row);
        }
        own->prepared = c->executor->region_serial;
    }
    return &own->input;
}

// out = scale * (x weight^T) + bias for the unit's rows of one weight.
static void product(const linear_context *c, const es_prepared *input, int32_t weight_index,
                    int32_t bias, const es_linear *linear, int64_t first, float *out, int64_t ld) {
    const es_executor *executor = c->executor;
    const es_weight *weight = executor->plan.weights[weight_index];
    const es_activation a = es_prepared_rows(input, weight->type, 0);
    int64_t n = weight->n_rows - first;
    n = n < linear->unit_rows ? n : linear->unit_rows;
    executor->kernels->matmul(weight, first / ES_LANES, (n + ES_LANES - 1) / ES_LANES, &a,
                              c->n_rows, out, ld);
    for (int64_t row = 0; row < c->n_rows; row++) {
        float *at = out + row * ld;
        if (linear->scale != 1.0f) {
            executor->kernels->scale(at, linear->scale, n, at);
        }
        if (bias >= 0) {
            executor->kernels->add(at, executor->plan.vectors[bias].data + first, n, at);
        }
    }
}

// What follows the product for one row of the unit: head norm, rope, cache, residual.
static void epilogue(es_executor *executor, const es_linear *linear, int64_t first, int64_t n,
                     int64_t row, float *at) {
    const es_kernels *kernels = executor->kernels;
    if (linear->head_norm >= 0) {
        kernels->rms_norm(at, executor->plan.vectors[linear->head_norm].data, n,
                          linear->head_norm_epsilon, at);
    }
    if (linear->rope >= 0) {
        const es_rope *spec = &executor->plan.ropes[linear->rope];
        const float *table = executor->rope_tables[linear->rope] + row * 2 * spec->n_pairs;
        if (spec->interleaved) {
            kernels->rope_interleaved(at, table, spec->n_pairs);
        } else {
            kernels->rope_halves(at, table, spec->n_pairs);
        }
    }
    if (linear->store_key >= 0) {
        es_store_key(executor, linear->store_key, at, row, first / linear->unit_rows, 1);
    }
    if (linear->store_value >= 0) {
        es_store_value(executor, linear->store_value, at, row, first / linear->unit_rows, 1);
    }
    if (linear->residual >= 0) {
        kernels->add(es_slot_row(executor, linear->residual, row) + first, at, n, at);
    }
}

static void unit(const linear_context *c, const es_linear *linear, int64_t index, int32_t worker) {
    es_executor *executor = c->executor;
    const es_prepared *input = worker_input(c, worker);
    const int64_t first = index * linear->unit_rows;
    const int64_t left = executor->plan.weights[linear->weight]->n_rows - first;
    const int64_t n = left < linear->unit_rows ? left : linear->unit_rows;
    float *tile = executor->workers[worker].tile;
    float *out = tile;
    int64_t ld = executor->widest_unit;
    if (linear->out >= 0) {
        out = executor->slots[linear->out] + first;
        ld = executor->strides[linear->out];
    }
    product(c, input, linear->weight, linear->bias, linear, first, out, ld);
    if (linear->up_weight >= 0) {
        float *up = tile + (int64_t)executor->plan.max_rows * executor->widest_unit;
        product(c, input, linear->up_weight, linear->up_bias, linear, first, up,
                executor->widest_unit);
        for (int64_t row = 0; row < c->n_rows; row++) {
            float *at = out + row * ld;
            es_apply_gate(executor->kernels, linear->gate, at, up + row * executor->widest_unit, n,
                          at);
        }
    }
    for (int64_t row = 0; row < c->n_rows; row++) {
        epilogue(executor, linear, first, n, row, out + row * ld);
    }
}

static int64_t n_units(const es_executor *executor, const es_linear *linear) {
    const int64_t n_rows = executor->plan.weights[linear->weight]->n_rows;
    return (n_rows + linear->unit_rows - 1) / linear->unit_rows;
}

static void linear_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const linear_context *c = context;
    const es_linear *linear = &c->executor->plan.linears[c->region->first];
    int64_t base = 0;
    for (int64_t index = first; index < end; index++) {
        while (index - base >= n_units(c->executor, linear)) {
            base += n_units(c->executor, linear);
            linear++;
        }
        unit(c, linear, index - base, worker);
    }
}

void es_run_linear(es_executor *executor, const es_region *region) {
    const es_linear *linears = &executor->plan.linears[region->first];
    linear_context context = {executor,
                              region,
                              NULL,
                              es_region_rows(executor, region->rows),
                              executor->plan.weights[linears[0].weight]->n_cols,
                              forms_of(executor, region)};
    if (context.n_rows == 0) {
        return;
    }
    if (context.n_rows > ES_REPLICATED_ROWS) {
        context.input = &executor->shared;
        es_pool_run(executor->pool, prepare_units, &context, context.n_rows, 4);
    }
    int64_t total = 0;
    for (int32_t i = 0; i < region->count; i++) {
        total += n_units(executor, &linears[i]);
    }
    es_pool_run(executor->pool, linear_units, &context, total, 1);
}
