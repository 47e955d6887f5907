// es_sample: rows of the last step's logits, one worker a row.
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "runtime/os.h"
#include "sampling/sampler.h"

static es_status scratch_create(es_sampler_scratch *scratch, int32_t vocab_size,
                                int32_t max_history) {
    scratch->max_history = max_history;
    scratch->repeats = malloc((size_t)max_history * sizeof *scratch->repeats);
    scratch->logits = malloc((size_t)vocab_size * sizeof *scratch->logits);
    scratch->counts = calloc((size_t)vocab_size, sizeof *scratch->counts);
    scratch->candidates = malloc((size_t)vocab_size * sizeof *scratch->candidates);
    return scratch->logits && scratch->counts && scratch->candidates && scratch->repeats
               ? ES_OK
               : ES_ERR_MEMORY;
}

static void scratch_free(es_sampler_scratch *scratch) {
    free(scratch->repeats);
    free(scratch->logits);
    free(scratch->counts);
    free(scratch->candidates);
}

es_status es_samplers_create(es_executor *executor, int32_t n_threads) {
    executor->samplers = calloc((size_t)n_threads, sizeof *executor->samplers);
    es_status status = executor->samplers == NULL ? ES_ERR_MEMORY : ES_OK;
    for (int32_t i = 0; status == ES_OK && i < n_threads; i++) {
        status = scratch_create(&executor->samplers[i], executor->plan.vocab_size,
                                executor->plan.max_position);
    }
    return status;
}

void es_samplers_free(es_executor *executor, int32_t n_threads) {
    for (int32_t i = 0; executor->samplers != NULL && i < n_threads; i++) {
        scratch_free(&executor->samplers[i]);
    }
    free(executor->samplers);
}

typedef struct {
    const es_kernels *kernels;
    const float *logits;
    int64_t stride;
    int32_t vocab_size;
    const es_sample_row *rows;
    int32_t n_rows;
    es_sampler_scratch *scratch; // one a worker
    es_sampled *out;
    int32_t *top_ids;
    double *top_logprobs;
    int32_t top_stride;
} sample_context;

// A chained row waits for the one before: whoever samples the first of a chain goes on with it.
static void sample_units(void *context, int64_t first, int64_t end, int32_t worker) {
    const sample_context *c = context;
    for (int64_t unit = first; unit < end; unit++) {
        double mu = c->rows[unit].mu;
        for (int64_t i = unit; i < c->n_rows && (i > unit) == (c->rows[i].chained != 0); i++) {
            es_sample_one(c->kernels, c->logits + i * c->stride, c->vocab_size, &c->rows[i], mu,
                          &c->scratch[worker], &c->out[i], c->top_ids + i * c->top_stride,
                          c->top_logprobs + i * c->top_stride);
            mu = c->out[i].mu;
        }
    }
}

static int looks_far_back(const es_sample_row *row, int32_t max_history) {
    const int32_t n = row->n_history;
    return row->mode == ES_SAMPLE_CHOOSE && row->n_samplers > 0 &&
           (row->dry_last_n > 0 && row->dry_last_n < n ? row->dry_last_n : n) > max_history;
}

static es_status check(const es_sample_row *rows, int32_t n_rows, int32_t vocab_size,
                       int32_t max_history, const es_sampled *out, const int32_t *top_ids,
                       const double *top_logprobs, int32_t top_stride) {
    if (rows == NULL || out == NULL || top_ids == NULL || top_logprobs == NULL) {
        return ES_ERR_NULL;
    }
    for (int32_t i = 0; i < n_rows; i++) {
        if (!es_sample_row_is_valid(&rows[i], vocab_size) || rows[i].n_top > top_stride ||
            looks_far_back(&rows[i], max_history) || (i == 0 && rows[i].chained)) {
            return ES_ERR_RANGE;
        }
    }
    return ES_OK;
}

es_status es_sample(es_executor *executor, const es_sample_row *rows, int32_t n_rows,
                    es_sampled *out, int32_t *top_ids, double *top_logprobs, int32_t top_stride) {
    if (executor == NULL) {
        return ES_ERR_NULL;
    }
    if (n_rows != executor->n_logits_rows) {
        return ES_ERR_LENGTH;
    }
    const es_status status =
        check(rows, n_rows, executor->plan.vocab_size, executor->plan.max_position, out, top_ids,
              top_logprobs, top_stride);
    if (status != ES_OK) {
        return status;
    }
    const int32_t slot = executor->plan.logits;
    sample_context context = {executor->kernels,
                              executor->slots[slot],
                              executor->strides[slot],
                              executor->plan.vocab_size,
                              rows,
                              n_rows,
                              executor->samplers,
                              out,
                              top_ids,
                              top_logprobs,
                              top_stride};
    const uint64_t control = es_os_float_control_begin();
    es_pool_run(executor->pool, sample_units, &context, n_rows, 1);
    es_os_float_control_end(control);
    return ES_OK;
}

static int32_t longest_history(const es_sample_row *rows, int32_t n_rows) {
    int32_t longest = 1;
    for (int32_t i = 0; i < n_rows; i++) {
        if (rows[i].mode == ES_SAMPLE_CHOOSE && rows[i].n_history > longest) {
            longest = rows[i].n_history;
        }
    }
    return longest;
}

es_status es_sample_logits(const float *logits, int64_t stride, int32_t vocab_size,
                           const es_sample_row *rows, int32_t n_rows, const char *kernels,
                           es_sampled *out, int32_t *top_ids, double *top_logprobs,
                           int32_t top_stride) {
    if (logits == NULL) {
        return ES_ERR_NULL;
    }
    if (vocab_size < 1 || stride < vocab_size || n_rows < 0) {
        return ES_ERR_LENGTH;
    }
    const es_kernels *set = es_kernels_select(kernels);
    if (set == NULL) {
        return ES_ERR_KERNELS;
    }
    es_status status =
        check(rows, n_rows, vocab_size, INT32_MAX, out, top_ids, top_logprobs, top_stride);
    es_sampler_scratch scratch = {0};
    const int32_t history = status == ES_OK ? longest_history(rows, n_rows) : 0;
    if (status == ES_OK && (status = scratch_create(&scratch, vocab_size, history)) == ES_OK) {
        sample_context context = {set,      logits, stride,  vocab_size,   rows,      n_rows,
                                  &scratch, out,    top_ids, top_logprobs, top_stride};
        const uint64_t control = es_os_float_control_begin();
        sample_units(&context, 0, n_rows, 0);
        es_os_float_control_end(control);
    }
    scratch_free(&scratch);
    return status;
}
