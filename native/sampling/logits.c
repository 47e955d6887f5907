#include "sampling/logits.h"

#include <math.h>

int es_has_penalties(const es_sample_row *row) {
    return row->repetition_penalty != 1.0 || row->presence_penalty != 0.0 ||
           row->frequency_penalty != 0.0;
}

// Repetition over prompt and output, presence and frequency over the output only.
void es_penalise(const es_sample_row *row, float *logits, int32_t *counts) {
    const int32_t n = row->n_history;
    const int32_t first =
        row->penalty_last_n > 0 && row->penalty_last_n < n ? n - row->penalty_last_n : 0;
    const int32_t first_output = row->n_prompt > first ? row->n_prompt : first;
    for (int32_t i = first; i < n; i++) {
        const int32_t id = row->history[i];
        if (counts[id] == 0) { // its first appearance
            const double value = logits[id];
            logits[id] = (float)(value > 0 ? value / row->repetition_penalty
                                           : value * row->repetition_penalty);
            counts[id] = -1;
        }
    }
    for (int32_t i = first_output; i < n; i++) {
        const int32_t id = row->history[i];
        counts[id] = counts[id] < 0 ? 1 : counts[id] + 1;
    }
    for (int32_t i = first; i < n; i++) {
        const int32_t id = row->history[i];
        if (counts[id] > 0) {
            logits[id] =
                (float)(logits[id] - (row->presence_penalty + row->frequency_penalty * counts[id]));
        }
        counts[id] = 0; // clean for the next row, and seen once
    }
}

void es_bias(const es_sample_row *row, float *logits) {
    for (int32_t i = 0; i < row->n_bias; i++) {
        const double bias = row->bias_values[i];
        float *at = &logits[row->bias_ids[i]];
        *at = bias <= -100.0 ? -INFINITY : (float)(*at + (bias < 100.0 ? bias : 100.0));
    }
    for (int32_t i = 0; i < row->n_banned; i++) {
        logits[row->banned[i]] = -INFINITY;
    }
}

void es_apply_mask(const es_sample_row *row, float *logits, int32_t vocab_size) {
    if (row->mask == NULL) {
        return;
    }
    for (int32_t first = 0; first < vocab_size; first += 32) {
        const uint32_t word = row->mask[first / 32];
        const int32_t end = vocab_size - first < 32 ? vocab_size : first + 32;
        for (int32_t id = first; word != UINT32_MAX && id < end; id++) {
            if (!(word >> (id - first) & 1)) {
                logits[id] = -INFINITY;
            }
        }
    }
}
