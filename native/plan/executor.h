// The executor's insides: a copied plan, its arena, the KV pools, and the state of one step.
#ifndef ES_PLAN_EXECUTOR_H
#define ES_PLAN_EXECUTOR_H

#include <stdatomic.h>
#include <stdint.h>

#include "edgeserve.h"
#include "kernels/kernels.h"
#include "runtime/threads.h"
#include "sampling/sampler.h"

enum {
    // Up to this many rows every worker prepares a linear region's input for itself: cheaper than
    // one more barrier.
    ES_REPLICATED_ROWS = 4,
    // Floats for attention partials that are computed apart and merged later.
    ES_SPLIT_FLOATS = 1 << 20,
    // Queries handed to one attention kernel call: whole tiles of 6 and of 8.
    ES_QUERIES_MAX = 48,
};

// The KV memory of one cache: a pool per KV head, so that a head's blocks lie together.
typedef struct {
    es_cache spec;
    uint8_t *keys;   // (n_kv_heads, capacity) blocks of key_block bytes: kernels/kv_block.h
    uint8_t *values; // (n_kv_heads, capacity) blocks of value_block bytes
    int64_t key_block;
    int64_t value_block;
    size_t key_bytes; // in all
    size_t value_bytes;
} es_cache_pool;

// Prepared input rows of a linear region, in every form that its weights read.
typedef struct {
    int64_t stride; // elements of a row
    float *x;
    int8_t *q32;
    float *d32;
    float *s32;
    int8_t *q256;
    float *d256;
    int16_t *sums256;
} es_prepared;

// Where the rows of a region of experts go.
typedef struct {
    es_prepared input; // one row for each of `pairs`
    int32_t *pairs;    // row * used + rank, by expert, and of one expert by row
    int32_t *ends;     // (n_experts,) one past each expert's pairs
    int32_t *active;   // experts that have pairs
    int32_t n_active;
} es_routing;

// What a worker may write without asking.
typedef struct {
    es_prepared input; // ES_REPLICATED_ROWS rows
    int64_t prepared;  // the region serial that `input` holds
    float *tile;       // (max_rows, widest unit) twice: gate and up
    float *partials;   // two sets of partial outputs, (ES_QUERIES_MAX, ES_HEAD_MAX) each
    uint8_t padding[64];
} es_worker;

struct es_executor {
    const es_kernels *kernels;
    es_pool *pool;
    es_plan plan;        // pointers own their arrays, but for the weights' insides
    float **slots;       // (max_rows, stride of the slot) each
    int64_t *strides;    // of slots, in floats: the width rounded up to whole panels
    float **rope_tables; // per rope (max_rows, 2 * n_pairs): cosines, then sines
    es_cache_pool *caches;
    int32_t n_blocks;
    int32_t capacity;   // blocks that the pools' memory holds
    es_prepared shared; // max_rows rows, of the widest input
    es_routing routing; // max_rows * used pairs, of the widest input of experts
    int64_t widest_input;
    int64_t widest_unit;
    es_worker *workers;
    float *split;                 // ES_SPLIT_FLOATS
    es_sampler_scratch *samplers; // one a worker

    // One step.
    const es_batch *batch;
    int32_t n_logits_rows;
    int32_t n_hidden_rows;
    int32_t *group_of_row; // (max_rows,)
    int32_t *block_of_row; // (n_cache_groups, max_rows)
    int32_t *output_rows;  // (max_rows,) the T row of each R row, then of each H row
    int64_t region_serial;
    uint64_t *profile; // the caller's, (n_regions + 1,), or NULL: es_profile
    atomic_int aborted;
};

static inline int64_t es_padded(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

// How many rows a region has.
static inline int32_t es_region_rows(const es_executor *executor, int32_t rows) {
    switch (rows) {
    case ES_ROWS_LOGITS:
        return executor->n_logits_rows;
    case ES_ROWS_OUTPUT:
        return executor->n_logits_rows + executor->n_hidden_rows;
    case ES_ROWS_HIDDEN:
        return executor->n_hidden_rows;
    default:
        return executor->batch->n_rows;
    }
}

static inline float *es_slot_row(const es_executor *executor, int32_t slot, int64_t row) {
    return executor->slots[slot] + row * executor->strides[slot];
}

static inline uint8_t *es_key_block(const es_executor *executor, const es_cache_pool *pool,
                                    int64_t head, int64_t block) {
    return pool->keys + (head * executor->capacity + block) * pool->key_block;
}

static inline uint8_t *es_value_block(const es_executor *executor, const es_cache_pool *pool,
                                      int64_t head, int64_t block) {
    return pool->values + (head * executor->capacity + block) * pool->value_block;
}

void es_apply_gate(const es_kernels *kernels, int32_t kind, const float *a, const float *b,
                   int64_t n, float *out);
void es_run_rows(es_executor *executor, const es_region *region);
void es_run_linear(es_executor *executor, const es_region *region);
void es_run_experts(es_executor *executor, const es_region *region);

// ES_ROW_MOE_ROUTE and ES_ROW_MOE_SUM of one row.
void es_route(const es_executor *executor, const es_row_op *op, int64_t row);
void es_sum_experts(const es_executor *executor, const es_row_op *op, int64_t row);

// The bit of `forms` that the products of a linear read.
int es_forms_of(const es_executor *executor, const es_linear *linear);

// Brings a row x of n_cols into row `row` of `into`, in every one of `forms`.
void es_prepare(const es_kernels *kernels, const float *x, int64_t n_cols, int forms,
                const es_prepared *into, int64_t row);

// Prepared rows, from `row` on, as a weight of `type` reads them.
es_activation es_prepared_rows(const es_prepared *input, es_type type, int64_t row);
void es_run_attention(es_executor *executor, const es_region *region);

// Stores a row's K or V heads (or one head, `first_head`, n_heads 1) at the row's position.
void es_store_key(es_executor *executor, int32_t cache, const float *k, int64_t row,
                  int64_t first_head, int64_t n_heads);
void es_store_value(es_executor *executor, int32_t cache, const float *v, int64_t row,
                    int64_t first_head, int64_t n_heads);

// Fills the rope tables for the batch's positions.
void es_fill_rope_tables(es_executor *executor);

// Allocation, for creation only.
es_status es_pools_create(es_executor *executor, int32_t n_blocks);
void es_pools_free(es_executor *executor);
es_status es_samplers_create(es_executor *executor, int32_t n_threads);
void es_samplers_free(es_executor *executor, int32_t n_threads);

#endif
