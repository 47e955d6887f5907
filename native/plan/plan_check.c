#include "plan/plan_check.h"

#include <stddef.h>

#include "kernels/kernels.h"
#include "kernels/weight.h"

enum { MAX_WIDTH = 1 << 24, MAX_ROWS = 1 << 16, MAX_EXPERTS = 1 << 14, MAX_PARTS = 64 };

static int within(int32_t index, int32_t n) { return index >= 0 && index < n; }

// Every product of counts is in 64 bits: counts are a caller's, and may be anything.
static int64_t times(int32_t a, int32_t b) { return (int64_t)a * b; }

static int slot(const es_plan *plan, int32_t index) { return within(index, plan->n_slots); }

static int vector_of(const es_plan *plan, int32_t index, int64_t length) {
    return within(index, plan->n_vectors) && plan->vectors[index].length == length;
}

static int arrays_exist(const es_plan *plan) {
    return plan->slot_widths && plan->regions && plan->row_ops && plan->linears &&
           plan->attentions && plan->vectors && plan->ropes && plan->caches && plan->weights;
}

static int counts_are_valid(const es_plan *plan) {
    return plan->n_slots >= 0 && plan->n_regions >= 0 && plan->n_row_ops >= 0 &&
           plan->n_linears >= 0 && plan->n_attentions >= 0 && plan->n_vectors >= 0 &&
           plan->n_ropes >= 0 && plan->n_caches >= 0 && plan->n_weights >= 0 &&
           plan->n_cache_groups >= 0;
}

static int cache_is_valid(const es_plan *plan, const es_cache *cache) {
    return within(cache->group, plan->n_cache_groups) && cache->n_kv_heads > 0 &&
           within(cache->type, ES_KV_Q4_0 + 1) && cache->key_size > 0 &&
           cache->key_size <= ES_HEAD_MAX && cache->value_size > 0 &&
           cache->value_size <= ES_HEAD_MAX &&
           times(cache->n_kv_heads, cache->key_size) <= MAX_WIDTH &&
           times(cache->n_kv_heads, cache->value_size) <= MAX_WIDTH;
}

static int parts_are_valid(const es_plan *plan) {
    for (int32_t i = 0; i < plan->n_slots; i++) {
        if (plan->slot_widths[i] < 1 || plan->slot_widths[i] > MAX_WIDTH) {
            return 0;
        }
    }
    for (int32_t i = 0; i < plan->n_vectors; i++) {
        if (plan->vectors[i].data == NULL || plan->vectors[i].length < 1) {
            return 0;
        }
    }
    for (int32_t i = 0; i < plan->n_ropes; i++) {
        if (plan->ropes[i].frequencies == NULL || plan->ropes[i].n_pairs < 1) {
            return 0;
        }
    }
    for (int32_t i = 0; i < plan->n_caches; i++) {
        if (!cache_is_valid(plan, &plan->caches[i])) {
            return 0;
        }
    }
    for (int32_t i = 0; i < plan->n_weights; i++) {
        if (plan->weights[i] == NULL) {
            return 0;
        }
    }
    return 1;
}

static int same_width(const es_plan *plan, int32_t a, int32_t b) {
    return slot(plan, a) && slot(plan, b) && plan->slot_widths[a] == plan->slot_widths[b];
}

static int stores_heads(const es_plan *plan, const es_row_op *op, int key) {
    if (!slot(plan, op->a) || !within(op->index, plan->n_caches)) {
        return 0;
    }
    const es_cache *cache = &plan->caches[op->index];
    const int32_t size = key ? cache->key_size : cache->value_size;
    return plan->slot_widths[op->a] == times(cache->n_kv_heads, size);
}

// Of a slot that holds a route: ids, then weights. 0 where it holds something else.
static int32_t n_used(const es_plan *plan, int32_t route) {
    return plan->slot_widths[route] % 2 == 0 ? plan->slot_widths[route] / 2 : 0;
}

static int row_op_is_valid(const es_plan *plan, const es_row_op *op) {
    switch (op->kind) {
    case ES_ROW_EMBED:
        return slot(plan, op->out) && within(op->index, plan->n_weights) &&
               plan->weights[op->index]->n_rows >= plan->vocab_size &&
               plan->weights[op->index]->n_cols == plan->slot_widths[op->out];
    case ES_ROW_RMS_NORM:
        return same_width(plan, op->a, op->out) && op->group > 0 &&
               plan->slot_widths[op->out] % op->group == 0 && vector_of(plan, op->index, op->group);
    case ES_ROW_ROPE:
        return same_width(plan, op->a, op->out) && within(op->index, plan->n_ropes) &&
               op->group > 0 && plan->slot_widths[op->out] % op->group == 0 &&
               times(2, plan->ropes[op->index].n_pairs) <= op->group;
    case ES_ROW_STORE_KEY:
        return stores_heads(plan, op, 1);
    case ES_ROW_STORE_VALUE:
        return stores_heads(plan, op, 0);
    case ES_ROW_ADD:
        return same_width(plan, op->a, op->out) && same_width(plan, op->b, op->out);
    case ES_ROW_GATE:
        return same_width(plan, op->a, op->out) && same_width(plan, op->b, op->out) &&
               within(op->index, ES_GATE_RELU_SQUARED + 1);
    case ES_ROW_MOE_ROUTE:
        return slot(plan, op->a) && slot(plan, op->out) && n_used(plan, op->out) >= 1 &&
               n_used(plan, op->out) <= plan->slot_widths[op->a] &&
               plan->slot_widths[op->a] <= MAX_EXPERTS;
    case ES_ROW_MOE_SUM:
        return slot(plan, op->a) && slot(plan, op->b) && slot(plan, op->out) &&
               n_used(plan, op->b) >= 1 &&
               plan->slot_widths[op->a] == times(n_used(plan, op->b), plan->slot_widths[op->out]);
    case ES_ROW_SELECT:
    case ES_ROW_SCALE:
    case ES_ROW_SOFT_CAP:
        return same_width(plan, op->a, op->out);
    default:
        return 0;
    }
}

// Each unit is one head of the cache.
static int stores_units(const es_plan *plan, const es_linear *linear, int32_t index, int64_t n_rows,
                        int key) {
    if (!within(index, plan->n_caches)) {
        return 0;
    }
    const es_cache *cache = &plan->caches[index];
    return (key ? cache->key_size : cache->value_size) == linear->unit_rows &&
           n_rows == times(linear->unit_rows, cache->n_kv_heads);
}

static int epilogue_is_valid(const es_plan *plan, const es_linear *linear, int64_t n_rows) {
    const int64_t head = linear->unit_rows;
    if (linear->head_norm != -1 && !vector_of(plan, linear->head_norm, head)) {
        return 0;
    }
    if (linear->rope != -1 && (!within(linear->rope, plan->n_ropes) ||
                               times(2, plan->ropes[linear->rope].n_pairs) > head)) {
        return 0;
    }
    if ((linear->head_norm != -1 || linear->rope != -1) && n_rows % head != 0) {
        return 0;
    }
    if ((linear->store_key != -1 && !stores_units(plan, linear, linear->store_key, n_rows, 1)) ||
        (linear->store_value != -1 &&
         !stores_units(plan, linear, linear->store_value, n_rows, 0))) {
        return 0;
    }
    return linear->residual == -1 || same_width(plan, linear->residual, linear->out);
}

static int linear_is_valid(const es_plan *plan, const es_region *region, const es_linear *linear) {
    if (!within(linear->weight, plan->n_weights) || linear->unit_rows < ES_LANES ||
        linear->unit_rows % ES_LANES != 0) {
        return 0;
    }
    const es_weight *weight = plan->weights[linear->weight];
    const int stored = linear->store_key != -1 || linear->store_value != -1;
    if (weight->n_cols != plan->slot_widths[region->x] ||
        (linear->out == -1 ? !stored : !slot(plan, linear->out)) ||
        (linear->out != -1 && plan->slot_widths[linear->out] != weight->n_rows) ||
        (linear->bias != -1 && !vector_of(plan, linear->bias, weight->n_rows))) {
        return 0;
    }
    if (linear->up_weight != -1) {
        if (!within(linear->up_weight, plan->n_weights) ||
            !within(linear->gate, ES_GATE_RELU_SQUARED + 1) ||
            plan->weights[linear->up_weight]->n_rows != weight->n_rows ||
            plan->weights[linear->up_weight]->n_cols != weight->n_cols ||
            (linear->up_bias != -1 && !vector_of(plan, linear->up_bias, weight->n_rows))) {
            return 0;
        }
    }
    return epilogue_is_valid(plan, linear, weight->n_rows);
}

static int both(int32_t a, int32_t b) { return a != -1 && a == b; }

// Units run in any order on any thread: none may write what another reads or writes.
static int linears_are_apart(const es_plan *plan, const es_region *region) {
    const es_linear *linears = &plan->linears[region->first];
    for (int32_t i = 0; i < region->count; i++) {
        if (linears[i].out == region->x) {
            return 0;
        }
        for (int32_t j = 0; j < region->count; j++) {
            if (j != i && (both(linears[i].out, linears[j].out) ||
                           both(linears[i].residual, linears[j].out) ||
                           both(linears[i].store_key, linears[j].store_key) ||
                           both(linears[i].store_value, linears[j].store_value))) {
                return 0;
            }
        }
    }
    return 1;
}

// A row's operations run one after another, on one thread, and read that row; but a selection reads
// another row, which nothing in its region may write.
static int selections_are_apart(const es_plan *plan, const es_region *region) {
    const es_row_op *ops = &plan->row_ops[region->first];
    for (int32_t i = 0; i < region->count; i++) {
        for (int32_t j = 0; j < region->count && ops[i].kind == ES_ROW_SELECT; j++) {
            const int writes = ops[j].kind != ES_ROW_STORE_KEY && ops[j].kind != ES_ROW_STORE_VALUE;
            if (writes && ops[j].out == ops[i].a) {
                return 0;
            }
        }
    }
    return 1;
}

// What wrote a slot last before region `end`: a route among the region's experts, of its rows?
// Anything else there could send rows to experts that do not exist.
static int holds_route(const es_plan *plan, int64_t end) {
    const es_region *reader = &plan->regions[end];
    for (int64_t i = end - 1; i >= 0; i--) {
        const es_region *region = &plan->regions[i];
        for (int64_t j = (int64_t)region->first + region->count - 1; j >= region->first; j--) {
            if (region->kind == ES_REGION_ROWS && plan->row_ops[j].out == reader->route) {
                const es_row_op *op = &plan->row_ops[j];
                return op->kind == ES_ROW_MOE_ROUTE && region->rows == reader->rows &&
                       plan->slot_widths[op->a] == reader->n_experts;
            }
            if (region->kind == ES_REGION_ATTENTION
                    ? plan->attentions[j].out == reader->route
                    : region->kind != ES_REGION_ROWS && plan->linears[j].out == reader->route) {
                return 0;
            }
        }
    }
    return 0;
}

static int experts_are_valid(const es_plan *plan, const es_region *region, int64_t index) {
    const es_linear *linear = &plan->linears[region->first];
    if (!slot(plan, region->x) || !slot(plan, region->route) || region->n_experts < 1 ||
        !within(linear->weight, plan->n_weights) || !slot(plan, linear->out) ||
        linear->out == region->x || linear->out == region->route || linear->bias != -1 ||
        linear->scale != 1.0f || linear->up_bias != -1 || linear->head_norm != -1 ||
        linear->rope != -1 || linear->store_key != -1 || linear->store_value != -1 ||
        linear->residual != -1 || linear->unit_rows < ES_LANES ||
        linear->unit_rows % ES_LANES != 0) {
        return 0;
    }
    const es_weight *weight = plan->weights[linear->weight];
    const int32_t used = n_used(plan, region->route), width = plan->slot_widths[region->x];
    if (weight->n_rows % times(region->n_experts, ES_LANES) != 0 ||
        (width != weight->n_cols && width != used * weight->n_cols) ||
        plan->slot_widths[linear->out] != used * (weight->n_rows / region->n_experts)) {
        return 0;
    }
    if (linear->up_weight != -1 && (!within(linear->up_weight, plan->n_weights) ||
                                    !within(linear->gate, ES_GATE_RELU_SQUARED + 1) ||
                                    plan->weights[linear->up_weight]->n_rows != weight->n_rows ||
                                    plan->weights[linear->up_weight]->n_cols != weight->n_cols)) {
        return 0;
    }
    return holds_route(plan, index);
}

static int attention_is_valid(const es_plan *plan, const es_attention *attention) {
    if (!slot(plan, attention->q) || !slot(plan, attention->out) ||
        attention->out == attention->q || !within(attention->cache, plan->n_caches) ||
        attention->n_heads < 1 || attention->window < 0) {
        return 0;
    }
    const es_cache *cache = &plan->caches[attention->cache];
    return attention->n_heads % cache->n_kv_heads == 0 &&
           plan->slot_widths[attention->q] == times(attention->n_heads, cache->key_size) &&
           plan->slot_widths[attention->out] == times(attention->n_heads, cache->value_size) &&
           (attention->sinks == -1 || vector_of(plan, attention->sinks, attention->n_heads));
}

static int region_is_valid(const es_plan *plan, int64_t index) {
    const es_region *region = &plan->regions[index];
    if (region->first < 0 || region->count < 1 || region->count > MAX_PARTS ||
        !within(region->rows, ES_ROWS_HIDDEN + 1)) {
        return 0;
    }
    if (region->rows == ES_ROWS_HIDDEN && region->kind != ES_REGION_ROWS) {
        return 0;
    }
    const int64_t end = (int64_t)region->first + region->count;
    switch (region->kind) {
    case ES_REGION_ROWS:
        if (end > plan->n_row_ops) {
            return 0;
        }
        for (int64_t i = region->first; i < end; i++) {
            if (!row_op_is_valid(plan, &plan->row_ops[i])) {
                return 0;
            }
        }
        return selections_are_apart(plan, region);
    case ES_REGION_LINEAR:
        if (end > plan->n_linears || !slot(plan, region->x) ||
            (region->norm != -1 && !vector_of(plan, region->norm, plan->slot_widths[region->x]))) {
            return 0;
        }
        for (int64_t i = region->first; i < end; i++) {
            if (!linear_is_valid(plan, region, &plan->linears[i])) {
                return 0;
            }
        }
        return linears_are_apart(plan, region);
    case ES_REGION_EXPERTS:
        return region->count == 1 && end <= plan->n_linears &&
               experts_are_valid(plan, region, index);
    case ES_REGION_ATTENTION:
        return region->count == 1 && end <= plan->n_attentions && region->rows == ES_ROWS_TOKENS &&
               attention_is_valid(plan, &plan->attentions[region->first]);
    default:
        return 0;
    }
}

es_status es_plan_check(const es_plan *plan) {
    if (!arrays_exist(plan)) {
        return ES_ERR_NULL;
    }
    if (plan->max_rows < 1 || plan->max_rows > MAX_ROWS || plan->max_position < 1 ||
        !counts_are_valid(plan) || !slot(plan, plan->logits) || !slot(plan, plan->hidden) ||
        !parts_are_valid(plan) || plan->slot_widths[plan->logits] != plan->vocab_size) {
        return ES_ERR_RANGE;
    }
    for (int32_t i = 0; i < plan->n_regions; i++) {
        if (!region_is_valid(plan, i)) {
            return ES_ERR_RANGE;
        }
    }
    return ES_OK;
}
