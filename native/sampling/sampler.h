// Choosing a token from a row of logits, and reporting how likely it was.
#ifndef ES_SAMPLING_SAMPLER_H
#define ES_SAMPLING_SAMPLER_H

#include "edgeserve.h"
#include "kernels/kernels.h"

enum { ES_TOP_MAX = 64 }; // likeliest tokens that a row may ask for

typedef struct {
    float logit;
    int32_t id;
} es_candidate;

// Memory for one row at a time; `counts` is all zero between calls.
typedef struct {
    float *logits;            // (vocab,)
    int32_t *counts;          // (vocab,)
    es_candidate *candidates; // (vocab,)
    int32_t *repeats;         // (max_history,)
    int32_t max_history;      // longest history that DRY can look at
} es_sampler_scratch;

// Whether every id of the row lies in the vocabulary and every knob in its range.
int es_sample_row_is_valid(const es_sample_row *row, int32_t vocab_size);

// `mu` stands for the row's own.
void es_sample_one(const es_kernels *kernels, const float *logits, int32_t vocab_size,
                   const es_sample_row *row, double mu, es_sampler_scratch *scratch,
                   es_sampled *out, int32_t *top_ids, double *top_logprobs);

#endif
