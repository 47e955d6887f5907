// What changes single logits: penalties, DRY, bias, the mask, bans.
#ifndef ES_SAMPLING_LOGITS_H
#define ES_SAMPLING_LOGITS_H

#include "sampling/sampler.h"

// Whether a row without samplers has penalties.
int es_has_penalties(const es_sample_row *row);

// Repetition, presence and frequency penalties.
void es_penalise(const es_sample_row *row, float *logits, int32_t *counts);

// DRY ("don't repeat yourself"): the penalty of a token grows with the length of the repetition
// that it would go on with.
void es_penalise_repeats(const es_sample_row *row, float *logits, es_sampler_scratch *scratch);

// Bias, and bans.
void es_bias(const es_sample_row *row, float *logits);

// -infinity wherever the row has a mask and its bit is not set.
void es_apply_mask(const es_sample_row *row, float *logits, int32_t vocab_size);

static inline int es_bit(const uint32_t *bitmap, int32_t id) {
    return bitmap[id / 32] >> (id % 32) & 1;
}

#endif
