// Whether a row may be sampled at all. Checks everything that the sampler relies on: ids, lengths,
// and that no number is NaN or infinite.
#include <float.h>
#include <stddef.h>

#include "sampling/sampler.h"

// Far beyond what makes sense, and far from where doubles overflow.
static const double LARGE = 1e6;

static int ids_are_valid(const int32_t *ids, int32_t n, int32_t vocab_size) {
    if (n > 0 && ids == NULL) {
        return 0;
    }
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab_size) {
            return 0;
        }
    }
    return n >= 0;
}

static int biases_are_valid(const es_sample_row *row, int32_t vocab_size) {
    if (!ids_are_valid(row->bias_ids, row->n_bias, vocab_size) ||
        (row->n_bias > 0 && row->bias_values == NULL)) {
        return 0;
    }
    for (int32_t i = 0; i < row->n_bias; i++) {
        if (row->bias_values[i] != row->bias_values[i]) { // NaN; infinities are held to 100 later
            return 0;
        }
    }
    return 1;
}

static int within(double value, double low, double high) { return value >= low && value <= high; }

static int32_t words_of(int32_t vocab_size) { return (vocab_size - 1) / 32 + 1; }

// In the order in which the sampler searches them.
static int breakers_are_valid(const es_breakers *breakers, int32_t vocab_size) {
    if (breakers == NULL) {
        return 1;
    }
    const int32_t n = breakers->n_sequences;
    if (breakers->alone == NULL || breakers->n_words != words_of(vocab_size) ||
        !ids_are_valid(breakers->heads, n, vocab_size) || (n > 0 && breakers->ends == NULL) ||
        !ids_are_valid(breakers->tails, breakers->n_tails, vocab_size)) {
        return 0;
    }
    int32_t end = 0;
    for (int32_t i = 0; i < n; i++) {
        if (breakers->ends[i] < end || (i > 0 && breakers->heads[i] < breakers->heads[i - 1])) {
            return 0;
        }
        end = breakers->ends[i];
    }
    return end == breakers->n_tails;
}

static int samplers_are_valid(const es_sample_row *row, int32_t vocab_size) {
    if (row->n_samplers < 0 || (row->n_samplers > 0 && row->samplers == NULL)) {
        return 0;
    }
    for (int32_t i = 0; i < row->n_samplers; i++) {
        const int is_last = i == row->n_samplers - 1; // mirostat's place, if it has one
        if (row->samplers[i] < ES_SAMPLER_PENALTIES ||
            row->samplers[i] > (is_last ? ES_SAMPLER_MIROSTAT : ES_SAMPLER_TEMPERATURE)) {
            return 0;
        }
    }
    return row->n_samplers == 0 ||
           (within(row->dynatemp_range, 0.0, LARGE) && within(row->dynatemp_exponent, 0.0, LARGE) &&
            row->typical_p >= 0.0 && within(row->top_n_sigma, 0.0, LARGE) &&
            within(row->xtc_probability, 0.0, 1.0) && within(row->xtc_threshold, 0.0, 1.0) &&
            within(row->dry_multiplier, 0.0, LARGE) && within(row->dry_base, 1.0, LARGE) &&
            row->dry_allowed_length >= 0 && within(row->mirostat_tau, 0.0, LARGE) &&
            within(row->mirostat_eta, 0.0, LARGE) && within(row->mu, -1e300, 1e300) &&
            breakers_are_valid(row->breakers, vocab_size));
}

int es_sample_row_is_valid(const es_sample_row *row, int32_t vocab_size) {
    if (row->mode == ES_SAMPLE_SCORE) {
        return row->token >= 0 && row->token < vocab_size && row->n_top >= 0 &&
               row->n_top <= ES_TOP_MAX;
    }
    const int knobs =
        within(row->temperature, 0.0, LARGE) && row->top_p >= 0.0 && within(row->min_p, 0.0, 1.0) &&
        row->repetition_penalty > 0.0 && row->repetition_penalty <= DBL_MAX &&
        within(row->presence_penalty, -LARGE, LARGE) &&
        within(row->frequency_penalty, -LARGE, LARGE) && row->top_k >= 0 && row->n_top >= -1 &&
        row->n_top <= ES_TOP_MAX && row->n_prompt >= 0 && row->n_prompt <= row->n_history &&
        row->penalty_last_n >= 0 && row->dry_last_n >= 0;
    const int masked = row->mask == NULL || row->n_mask_words == words_of(vocab_size);
    return knobs && masked && ids_are_valid(row->history, row->n_history, vocab_size) &&
           biases_are_valid(row, vocab_size) &&
           ids_are_valid(row->banned, row->n_banned, vocab_size) &&
           samplers_are_valid(row, vocab_size);
}
