// es_step: check the batch, lay out the step's state, walk the regions.
#include "plan/executor.h"
#include "runtime/os.h"

static int blocks_exist(const es_executor *executor, const es_batch *batch, int32_t group) {
    const int32_t last_row = batch->first_row[group + 1] - 1;
    const int32_t needed = batch->positions[last_row] / ES_KV_BLOCK + 1;
    if (needed > batch->table_stride) {
        return 0;
    }
    for (int32_t c = 0; c < executor->plan.n_cache_groups; c++) {
        const int64_t at = (int64_t)c * batch->n_groups + group;
        const int32_t *table = batch->block_tables + at * batch->table_stride;
        for (int32_t i = 0; i < needed; i++) {
            if (table[i] < 0 || table[i] >= executor->n_blocks) {
                return 0;
            }
        }
    }
    return 1;
}

// All of a step's outputs have room as long as no row is one twice.
static int outputs_are_valid(const es_batch *batch, int32_t group, int32_t n_rows) {
    const int32_t n_logits = batch->n_logits_rows[group], n_hidden = batch->n_hidden_rows[group];
    return n_logits >= 0 && n_hidden >= 0 && n_logits <= n_rows && n_hidden <= n_rows &&
           (n_logits == 0 || n_hidden == 0);
}

static int group_is_valid(const es_executor *executor, const es_batch *batch, int32_t group) {
    const int32_t first = batch->first_row[group], end = batch->first_row[group + 1];
    if (end <= first || end > batch->n_rows || !outputs_are_valid(batch, group, end - first)) {
        return 0;
    }
    const int64_t position = batch->positions[first];
    if (position < 0 || position + (end - first) > executor->plan.max_position) {
        return 0;
    }
    for (int32_t row = first; row < end; row++) {
        const int32_t token = batch->token_ids[row];
        if (token >= executor->plan.vocab_size || token < (batch->embeddings == NULL ? 0 : -1)) {
            return 0;
        }
        if (batch->positions[row] != position + (row - first)) {
            return 0;
        }
    }
    return blocks_exist(executor, batch, group);
}

static es_status check(const es_executor *executor, const es_batch *batch) {
    if (batch == NULL || batch->token_ids == NULL || batch->positions == NULL ||
        batch->first_row == NULL || batch->n_logits_rows == NULL || batch->n_hidden_rows == NULL ||
        batch->block_tables == NULL) {
        return ES_ERR_NULL;
    }
    if (batch->n_rows < 1 || batch->n_rows > executor->plan.max_rows || batch->n_groups < 1 ||
        batch->n_groups > batch->n_rows || batch->first_row[0] != 0 ||
        batch->first_row[batch->n_groups] != batch->n_rows) {
        return ES_ERR_LENGTH;
    }
    for (int32_t group = 0; group < batch->n_groups; group++) {
        if (!group_is_valid(executor, batch, group)) {
            return ES_ERR_RANGE;
        }
    }
    return ES_OK;
}

// The last n_last[g] rows of each group go behind the `n` outputs there are; how many then.
static int32_t append_outputs(es_executor *executor, const es_batch *batch, const int32_t *n_last,
                              int32_t n) {
    for (int32_t group = 0; group < batch->n_groups; group++) {
        const int32_t end = batch->first_row[group + 1];
        for (int32_t row = end - n_last[group]; row < end; row++) {
            executor->output_rows[n++] = row;
        }
    }
    return n;
}

static void lay_out(es_executor *executor, const es_batch *batch) {
    executor->batch = batch;
    const int32_t n_logits = append_outputs(executor, batch, batch->n_logits_rows, 0);
    executor->n_logits_rows = n_logits;
    executor->n_hidden_rows =
        append_outputs(executor, batch, batch->n_hidden_rows, n_logits) - n_logits;
    for (int32_t group = 0; group < batch->n_groups; group++) {
        const int32_t end = batch->first_row[group + 1];
        for (int32_t row = batch->first_row[group]; row < end; row++) {
            executor->group_of_row[row] = group;
            for (int32_t c = 0; c < executor->plan.n_cache_groups; c++) {
                const int64_t table = (int64_t)c * batch->n_groups + group;
                const int32_t block = batch->positions[row] / ES_KV_BLOCK;
                executor->block_of_row[(int64_t)c * executor->plan.max_rows + row] =
                    batch->block_tables[table * batch->table_stride + block];
            }
        }
    }
}

static void run_region(es_executor *executor, const es_region *region) {
    executor->region_serial++;
    switch (region->kind) {
    case ES_REGION_ROWS:
        es_run_rows(executor, region);
        break;
    case ES_REGION_LINEAR:
        es_run_linear(executor, region);
        break;
    case ES_REGION_EXPERTS:
        es_run_experts(executor, region);
        break;
    default:
        es_run_attention(executor, region);
        break;
    }
}

// Adds the time since `since` to `part` of the profile, if there is one.
static void note(const es_executor *executor, int32_t part, uint64_t *since) {
    if (executor->profile != NULL) {
        const uint64_t now = es_os_nanoseconds();
        executor->profile[part] += now - *since;
        *since = now;
    }
}

es_status es_profile(es_executor *executor, uint64_t *nanoseconds, int32_t n) {
    if (executor == NULL) {
        return ES_ERR_NULL;
    }
    if (nanoseconds != NULL && n != executor->plan.n_regions + 1) {
        return ES_ERR_LENGTH;
    }
    executor->profile = nanoseconds;
    return ES_OK;
}

es_status es_step(es_executor *executor, const es_batch *batch) {
    if (executor == NULL) {
        return ES_ERR_NULL;
    }
    uint64_t since = executor->profile != NULL ? es_os_nanoseconds() : 0;
    es_status status = check(executor, batch);
    if (status != ES_OK) {
        return status;
    }
    const uint64_t control = es_os_float_control_begin();
    lay_out(executor, batch);
    es_fill_rope_tables(executor);
    note(executor, executor->plan.n_regions, &since);
    for (int32_t i = 0; i < executor->plan.n_regions && status == ES_OK; i++) {
        if (atomic_load_explicit(&executor->aborted, memory_order_relaxed)) {
            status = ES_ERR_ABORTED;
        } else {
            run_region(executor, &executor->plan.regions[i]);
            note(executor, i, &since);
        }
    }
    executor->batch = NULL; // it belongs to the caller, who may free it now
    if (status != ES_OK) {
        executor->n_logits_rows = 0;
        executor->n_hidden_rows = 0;
    }
    es_os_float_control_end(control);
    return status;
}

void es_abort(es_executor *executor, int32_t raised) {
    if (executor != NULL) {
        atomic_store_explicit(&executor->aborted, raised != 0, memory_order_relaxed);
    }
}

es_status es_logits(const es_executor *executor, const float **out, int32_t *n_rows,
                    int64_t *stride) {
    if (executor == NULL || out == NULL || n_rows == NULL || stride == NULL) {
        return ES_ERR_NULL;
    }
    *out = executor->slots[executor->plan.logits];
    *n_rows = executor->n_logits_rows;
    *stride = executor->strides[executor->plan.logits];
    return ES_OK;
}

es_status es_hidden(const es_executor *executor, const float **out, int32_t *n_rows,
                    int64_t *stride) {
    if (executor == NULL || out == NULL || n_rows == NULL || stride == NULL) {
        return ES_ERR_NULL;
    }
    *out = es_slot_row(executor, executor->plan.hidden, executor->n_logits_rows);
    *n_rows = executor->n_hidden_rows;
    *stride = executor->strides[executor->plan.hidden];
    return ES_OK;
}
