// Building and freeing an executor: the plan is checked and copied, all memory is taken here.
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "plan/plan_check.h"
#include "runtime/os.h"

// Memory for one array, on cache lines, zeroed. The size is remembered in the line before.
static void *lines(size_t n_bytes) {
    const size_t total = (size_t)es_padded((int64_t)n_bytes, 64) + 64;
    uint8_t *pages = es_os_pages(total, n_bytes > 1u << 21);
    if (pages == NULL) {
        return NULL;
    }
    memcpy(pages, &total, sizeof total);
    return pages + 64;
}

static void lines_free(void *at) {
    if (at != NULL) {
        size_t total;
        memcpy(&total, (uint8_t *)at - 64, sizeof total);
        es_os_pages_free((uint8_t *)at - 64, total);
    }
}

// A copy of an array, or NULL without memory; an empty one is one zeroed element.
static void *copy(const void *from, int32_t n, size_t size) {
    void *to = calloc((size_t)n + 1, size);
    if (to != NULL && n > 0) {
        memcpy(to, from, (size_t)n * size);
    }
    return to;
}

static es_status copy_vectors(es_plan *plan) {
    es_vector *vectors = (es_vector *)plan->vectors;
    for (int32_t i = 0; i < plan->n_vectors; i++) {
        vectors[i].data = copy(vectors[i].data, vectors[i].length, sizeof(float));
        if (vectors[i].data == NULL) {
            plan->n_vectors = i;
            return ES_ERR_MEMORY;
        }
    }
    es_rope *ropes = (es_rope *)plan->ropes;
    for (int32_t i = 0; i < plan->n_ropes; i++) {
        ropes[i].frequencies = copy(ropes[i].frequencies, ropes[i].n_pairs, sizeof(double));
        if (ropes[i].frequencies == NULL) {
            plan->n_ropes = i;
            return ES_ERR_MEMORY;
        }
    }
    return ES_OK;
}

static es_status copy_plan(es_plan *to, const es_plan *from) {
    *to = *from;
    to->slot_widths = copy(from->slot_widths, from->n_slots, sizeof *from->slot_widths);
    to->regions = copy(from->regions, from->n_regions, sizeof *from->regions);
    to->row_ops = copy(from->row_ops, from->n_row_ops, sizeof *from->row_ops);
    to->linears = copy(from->linears, from->n_linears, sizeof *from->linears);
    to->attentions = copy(from->attentions, from->n_attentions, sizeof *from->attentions);
    to->vectors = copy(from->vectors, from->n_vectors, sizeof *from->vectors);
    to->ropes = copy(from->ropes, from->n_ropes, sizeof *from->ropes);
    to->caches = copy(from->caches, from->n_caches, sizeof *from->caches);
    to->weights = copy(from->weights, from->n_weights, sizeof *from->weights);
    if (to->slot_widths == NULL || to->regions == NULL || to->row_ops == NULL ||
        to->linears == NULL || to->attentions == NULL || to->vectors == NULL || to->ropes == NULL ||
        to->caches == NULL || to->weights == NULL) {
        to->n_vectors = 0; // their data is still the caller's
        to->n_ropes = 0;
        return ES_ERR_MEMORY;
    }
    return copy_vectors(to);
}

static void free_plan(es_plan *plan) {
    for (int32_t i = 0; plan->vectors != NULL && i < plan->n_vectors; i++) {
        free((void *)plan->vectors[i].data);
    }
    for (int32_t i = 0; plan->ropes != NULL && i < plan->n_ropes; i++) {
        free((void *)plan->ropes[i].frequencies);
    }
    const void *arrays[] = {plan->slot_widths, plan->regions,    plan->row_ops,
                            plan->linears,     plan->attentions, plan->vectors,
                            plan->ropes,       plan->caches,     plan->weights};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        free((void *)arrays[i]);
    }
}

static void measure(es_executor *executor) {
    const es_plan *plan = &executor->plan;
    int64_t input = 256, unit = ES_LANES;
    for (int32_t i = 0; i < plan->n_linears; i++) {
        const int64_t n_cols = plan->weights[plan->linears[i].weight]->n_cols;
        input = n_cols > input ? n_cols : input;
        unit = plan->linears[i].unit_rows > unit ? plan->linears[i].unit_rows : unit;
    }
    executor->widest_input = es_padded(input, 1024); // rows of every form start on cache lines
    executor->widest_unit = unit;
}

static es_status prepared_create(es_prepared *prepared, int64_t n_rows, int64_t stride) {
    const size_t n = (size_t)(n_rows * stride);
    prepared->stride = stride;
    prepared->x = lines(n * sizeof *prepared->x);
    prepared->q32 = lines(n);
    prepared->d32 = lines(n / 32 * sizeof *prepared->d32);
    prepared->s32 = lines(n / 32 * sizeof *prepared->s32);
    prepared->q256 = lines(n);
    prepared->d256 = lines(n / 256 * sizeof *prepared->d256);
    prepared->sums256 = lines(n / 16 * sizeof *prepared->sums256);
    const int complete = prepared->x && prepared->q32 && prepared->d32 && prepared->s32 &&
                         prepared->q256 && prepared->d256 && prepared->sums256;
    return complete ? ES_OK : ES_ERR_MEMORY;
}

static void prepared_free(es_prepared *prepared) {
    lines_free(prepared->x);
    lines_free(prepared->q32);
    lines_free(prepared->d32);
    lines_free(prepared->s32);
    lines_free(prepared->q256);
    lines_free(prepared->d256);
    lines_free(prepared->sums256);
}

// Room for the region of experts that takes the most.
static es_status routing_create(es_executor *executor) {
    const es_plan *plan = &executor->plan;
    es_routing *routing = &executor->routing;
    int64_t n_experts = 0, n_used = 0, input = 0;
    for (int32_t i = 0; i < plan->n_regions; i++) {
        const es_region *region = &plan->regions[i];
        if (region->kind == ES_REGION_EXPERTS) {
            const int64_t n_cols = plan->weights[plan->linears[region->first].weight]->n_cols;
            const int64_t used = plan->slot_widths[region->route] / 2;
            input = n_cols > input ? n_cols : input;
            n_used = used > n_used ? used : n_used;
            n_experts = region->n_experts > n_experts ? region->n_experts : n_experts;
        }
    }
    if (n_experts == 0) {
        return ES_OK;
    }
    const int64_t n_pairs = plan->max_rows * n_used;
    routing->pairs = lines((size_t)n_pairs * sizeof *routing->pairs);
    routing->ends = lines((size_t)n_experts * sizeof *routing->ends);
    routing->active = lines((size_t)n_experts * sizeof *routing->active);
    if (routing->pairs == NULL || routing->ends == NULL || routing->active == NULL) {
        return ES_ERR_MEMORY;
    }
    return prepared_create(&routing->input, n_pairs, es_padded(input, 1024));
}

static void routing_free(es_routing *routing) {
    prepared_free(&routing->input);
    lines_free(routing->pairs);
    lines_free(routing->ends);
    lines_free(routing->active);
}

static es_status workers_create(es_executor *executor, int32_t n_threads) {
    executor->workers = calloc((size_t)n_threads, sizeof *executor->workers);
    if (executor->workers == NULL) {
        return ES_ERR_MEMORY;
    }
    const int64_t tile = 2 * (int64_t)executor->plan.max_rows * executor->widest_unit;
    for (int32_t i = 0; i < n_threads; i++) {
        es_worker *worker = &executor->workers[i];
        worker->tile = lines((size_t)tile * sizeof(float));
        worker->partials = lines(2 * ES_QUERIES_MAX * ES_HEAD_MAX * sizeof(float));
        if (worker->tile == NULL || worker->partials == NULL ||
            prepared_create(&worker->input, ES_REPLICATED_ROWS, executor->widest_input) != ES_OK) {
            return ES_ERR_MEMORY;
        }
    }
    return ES_OK;
}

static es_status arena_create(es_executor *executor) {
    const es_plan *plan = &executor->plan;
    const int64_t max_rows = plan->max_rows;
    executor->slots = calloc((size_t)plan->n_slots + 1, sizeof *executor->slots);
    executor->strides = calloc((size_t)plan->n_slots + 1, sizeof *executor->strides);
    executor->rope_tables = calloc((size_t)plan->n_ropes + 1, sizeof *executor->rope_tables);
    executor->group_of_row = lines((size_t)max_rows * sizeof(int32_t));
    executor->output_rows = lines((size_t)max_rows * sizeof(int32_t));
    executor->block_of_row =
        lines((size_t)(max_rows * ((int64_t)plan->n_cache_groups + 1)) * sizeof(int32_t));
    executor->split = lines(ES_SPLIT_FLOATS * sizeof(float));
    if (executor->slots == NULL || executor->strides == NULL || executor->rope_tables == NULL ||
        executor->group_of_row == NULL || executor->output_rows == NULL ||
        executor->block_of_row == NULL || executor->split == NULL) {
        return ES_ERR_MEMORY;
    }
    for (int32_t i = 0; i < plan->n_slots; i++) {
        executor->strides[i] = es_padded(plan->slot_widths[i], ES_LANES);
        executor->slots[i] = lines((size_t)(max_rows * executor->strides[i]) * sizeof(float));
        if (executor->slots[i] == NULL) {
            return ES_ERR_MEMORY;
        }
    }
    for (int32_t i = 0; i < plan->n_ropes; i++) {
        const int64_t n = max_rows * 2 * plan->ropes[i].n_pairs;
        executor->rope_tables[i] = lines((size_t)n * sizeof(float));
        if (executor->rope_tables[i] == NULL) {
            return ES_ERR_MEMORY;
        }
    }
    return prepared_create(&executor->shared, max_rows, executor->widest_input);
}

es_status es_executor_create(const es_plan *plan, int32_t n_threads, const char *kernels,
                             int32_t n_blocks, es_executor **out) {
    if (plan == NULL || out == NULL) {
        return ES_ERR_NULL;
    }
    es_status status = es_plan_check(plan);
    if (status != ES_OK) {
        return status;
    }
    if (n_threads < 1 || n_blocks < 1) {
        return ES_ERR_RANGE;
    }
    const es_kernels *set = es_kernels_select(kernels);
    if (set == NULL) {
        return ES_ERR_KERNELS;
    }
    es_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL) {
        return ES_ERR_MEMORY;
    }
    executor->kernels = set;
    atomic_init(&executor->aborted, 0);
    if ((status = copy_plan(&executor->plan, plan)) != ES_OK) {
        goto fail;
    }
    measure(executor);
    executor->caches = calloc((size_t)plan->n_caches + 1, sizeof *executor->caches);
    if (executor->caches == NULL) {
        status = ES_ERR_MEMORY;
        goto fail;
    }
    if ((status = arena_create(executor)) != ES_OK ||
        (status = routing_create(executor)) != ES_OK ||
        (status = es_pools_create(executor, n_blocks)) != ES_OK ||
        (status = es_pool_create(n_threads, &executor->pool)) != ES_OK ||
        (status = workers_create(executor, n_threads)) != ES_OK ||
        (status = es_samplers_create(executor, n_threads)) != ES_OK) {
        goto fail;
    }
    *out = executor;
    return ES_OK;
fail:
    es_executor_free(executor);
    return status;
}

void es_executor_free(es_executor *executor) {
    if (executor == NULL) {
        return;
    }
    const int32_t n_threads = executor->pool != NULL ? es_pool_n_threads(executor->pool) : 0;
    es_pool_free(executor->pool);
    es_samplers_free(executor, n_threads);
    for (int32_t i = 0; executor->workers != NULL && i < n_threads; i++) {
        lines_free(executor->workers[i].tile);
        lines_free(executor->workers[i].partials);
        prepared_free(&executor->workers[i].input);
    }
    for (int32_t i = 0; executor->slots != NULL && i < executor->plan.n_slots; i++) {
        lines_free(executor->slots[i]);
    }
    for (int32_t i = 0; executor->rope_tables != NULL && i < executor->plan.n_ropes; i++) {
        lines_free(executor->rope_tables[i]);
    }
    es_pools_free(executor);
    prepared_free(&executor->shared);
    routing_free(&executor->routing);
    lines_free(executor->group_of_row);
    lines_free(executor->block_of_row);
    lines_free(executor->output_rows);
    lines_free(executor->split);
    free(executor->workers);
    free(executor->caches);
    free(executor->slots);
    free(executor->strides);
    free(executor->rope_tables);
    free_plan(&executor->plan);
    free(executor);
}

const char *es_executor_kernels(const es_executor *executor) {
    return executor != NULL ? executor->kernels->name : "";
}
