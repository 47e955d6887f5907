// Mixtures of experts: which experts a row goes to, products expert by expert, and their sum.
//
// A region's rows are sorted by expert first; then (expert, unit of weight rows) pairs are computed
// like a linear's units, each over the rows of its expert.
#include <string.h>

#include "plan/executor.h"

// --- one row -------------------------------------------------------------------------------------

void es_route(const es_executor *executor, const es_row_op *op, int64_t row) {
    const int32_t n_experts = executor->plan.slot_widths[op->a];
    const int32_t n_used = executor->plan.slot_widths[op->out] / 2;
    const float *logits = es_slot_row(executor, op->a, row);
    float *ids = es_slot_row(executor, op->out, row);
    float *chosen = ids + n_used; // their logits at first
    int32_t n = 0;
    for (int32_t id = 0; id < n_experts; id++) {
        // Greater only: of equals the lower id stays before. A NaN is never moved forward, so that
        // whatever comes in, n_used different experts go out.
        if (n == n_used && !(logits[id] > chosen[n - 1])) {
            continue;
        }
        int32_t at = n < n_used ? n++ : n - 1;
        for (; at > 0 && logits[id] > chosen[at - 1]; at--) {
            ids[at] = ids[at - 1];
            chosen[at] = chosen[at - 1];
        }
        ids[at] = (float)id;
        chosen[at] = logits[id];
    }
    const es_kernels *kernels = executor->kernels;
    const float largest = chosen[0];
    const float total = op->index != 0 ? kernels->sum_exp(chosen, n_used, largest)
                                       : kernels->sum_exp(logits, n_experts, largest);
    for (int32_t rank = 0; rank < n_used; rank++) {
        chosen[rank] = kernels->sum_exp(chosen + rank, 1, largest) / total;
    }
    if (op->factor != 1.0f) {
        kernels->scale(chosen, op->factor, n_used, chosen);
    }
}

void es_sum_experts(const es_executor *executor, const es_row_op *op, int64_t row) {
    const int64_t n_used = executor->plan.slot_widths[op->b] / 2;
    const int64_t width = executor->plan.slot_widths[op->out];
    const float *runs = es_slot_row(executor, op->a, row);
    const float *weights = es_slot_row(executor, op->b, row) + n_used;
    float *out = es_slot_row(executor, op->out, row);
    memset(out, 0, (size_t)width * sizeof *out);
    for (int64_t rank = 0; rank < n_used; rank++) {
        executor->kernels->add_scaled(runs + rank * width, weights[rank], width, out);
    }
}

// --- a region ------------------------------------------------------------------------------------

typedef struct {
    es_executor *executor;
    const es_region *region;
    const es_linear *linear;
    int32_t n_used;
    int32_t n_out;   // weight rows of one expert
    int64_t n_units; // of one expert
    int64_t n_cols;
    int64_t run; // from one of a row's inputs to the next; 0 where they are one
    int forms;
} experts_context;

static int32_t expert_of(const experts_context *c, int64_t row, int32_t rank) {
    return (int32_t)es_slot_row(c->executor, c->region->route, row)[rank];
}

static void sort_rows(const experts_context *c, int64_t n_rows) {
    es_routing *routing = &c->executor->routing;
    const int32_t n_experts = c->region->n_experts;
    memset(routing->ends, 0, (size_t)n_experts * sizeof *routing->ends);
    for (int64_t row = 0; row < n_rows; row++) {
        for (int32_t rank = 0; rank < c->n_used; rank++) {
            routing->ends[expert_of(c, row, rank)]++;
        }
    }
    routing->n_active = 0;
    for (int32_t expert = 0, before = 0; expert < n_experts; expert++) {
        const int32_t n = routing->ends[expert];
        if (n > 0) {
            routing->active[routing->n_active++] = expert;
        }
        routing->ends[expert] = before; // moves to the end as pairs are put down
        before += n;
    }
    for (int64_t row = 0; row < n_rows; row++) {
        for (int32_t rank = 0; rank < c->n_used; rank++) {
            const int32_t at = routing->ends[expert_of(c, row, rank)]++;
            routing->pairs[at] = (int32_t)(row * c->n_used + rank);
        }
    }
}

static void prepare_pairs(void *context, int64_t first, int64_t end, int32_t worker) {
    const experts_context *c = context;
    const es_routing *routing = &c->executor->routing;
    (void)worker;
    for (int64_t i = first; i < end; i++) {
        const int32_t row = routing->pairs[i] / c->n_used, rank = routing->pairs[i] % c->n_used;
        const float *x = es_slot_row(c->executor, c->region->x, row) + rank * c->run;
        es_prepare(c->executor->kernels, x, c->n_cols, c->forms, &routing->input, i);
    }
}

// The product of pairs [first, first + n) with n_out weight rows from `weight_row` on.
static void product(const experts_context *c, int32_t weight_index, int64_t weight_row,
                    int64_t n_out, int64_t first, int64_t n, float *out) {
    const es_executor *executor = c->executor;
    const es_weight *weight = executor->plan.weights[weight_index];
    const es_activation a = es_prepared_rows(&executor->routing.input, weight->type, first);
    executor->kernels->matmul(weight, weight_row / ES_LANES, n_out / ES_LANES, &a, n, out,
                              executor->widest_unit);
}

static void unit(const experts_context *c, int32_t expert, int64_t index, int32_t worker) {
    const es_executor *executor = c->executor;
    const es_routing *routing = &executor->routing;
    const es_linear *linear = c->linear;
    const int64_t begin = expert > 0 ? routing->ends[expert - 1] : 0;
    const int64_t n = routing->ends[expert] - begin;
    const int64_t first = index * linear->unit_rows, left = c->n_out - first;
    const int64_t n_out = left < linear->unit_rows ? left : linear->unit_rows;
    const int64_t weight_row = (int64_t)expert * c->n_out + first, ld = executor->widest_unit;
    float *tile = executor->workers[worker].tile;
    float *up = tile + (int64_t)executor->plan.max_rows * ld;
    product(c, linear->weight, weight_row, n_out, begin, n, tile);
    if (linear->up_weight >= 0) {
        product(c, linear->up_weight, weight_row, n_out, begin, n, up);
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t pair = routing->pairs[begin + i];
        const int64_t rank = pair % c->n_used;
        float *out = es_slot_row(executor, linear->out, pair / c->n_used) + rank * c->n_out + first;
        if (linear->up_weight >= 0) {
            es_apply_gate(executor->kernels, linear->gate, tile + i * ld, up + i * ld, n_out, out);
        } else {
            executor->kernels->scale(tile + i * ld, 1.0f, n_out, out);
        }
    }
}

static void experts_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const experts_context *c = context;
    for (int64_t i = first; i < end; i++) {
        unit(c, c->executor->routing.active[i / c->n_units], i % c->n_units, worker);
    }
}

void es_run_experts(es_executor *executor, const es_region *region) {
    const int64_t n_rows = es_region_rows(executor, region->rows);
    const es_linear *linear = &executor->plan.linears[region->first];
    const es_weight *weight = executor->plan.weights[linear->weight];
    const int32_t n_out = (int32_t)(weight->n_rows / region->n_experts);
    const int is_shared = executor->plan.slot_widths[region->x] == weight->n_cols;
    experts_context context = {.executor = executor,
                               .region = region,
                               .linear = linear,
                               .n_used = executor->plan.slot_widths[region->route] / 2,
                               .n_out = n_out,
                               .n_units = (n_out + linear->unit_rows - 1) / linear->unit_rows,
                               .n_cols = weight->n_cols,
                               .run = is_shared ? 0 : weight->n_cols,
                               .forms = es_forms_of(executor, linear)};
    if (n_rows == 0) {
        return;
    }
    sort_rows(&context, n_rows);
    es_pool_run(executor->pool, prepare_pairs, &context, n_rows * context.n_used, 4);
    es_pool_run(executor->pool, experts_units, &context,
                executor->routing.n_active * context.n_units, 1);
}
