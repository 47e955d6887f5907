#include "sampling/sampler.h"

#include <math.h>
#include <string.h>

#include "sampling/candidates.h"
#include "sampling/logits.h"
#include "sampling/math64.h"
#include "sampling/noise.h"

// A row of logits, and where its likeliest token is.
typedef struct {
    const float *values;
    int32_t best;
    float largest;
} row_logits;

static int find_best(const es_kernels *kernels, const float *values, int32_t vocab_size,
                     row_logits *out) {
    int64_t best;
    int32_t finite;
    out->values = values;
    kernels->argmax(values, vocab_size, &best, &out->largest, &finite);
    out->best = (int32_t)best;
    return finite;
}

// The samplers of the row that act on single logits, up to the first other one; how many they are.
static int32_t penalise(const es_sample_row *row, es_sampler_scratch *scratch) {
    if (row->n_samplers == 0) {
        if (es_has_penalties(row)) {
            es_penalise(row, scratch->logits, scratch->counts);
        }
        return 0;
    }
    int32_t next = 0;
    for (; next < row->n_samplers; next++) {
        if (row->samplers[next] == ES_SAMPLER_PENALTIES) {
            es_penalise(row, scratch->logits, scratch->counts);
        } else if (row->samplers[next] == ES_SAMPLER_DRY) {
            es_penalise_repeats(row, scratch->logits, scratch);
        } else {
            break;
        }
    }
    return next;
}

static int changes_logits(const es_sample_row *row) {
    return row->n_samplers > 0 || es_has_penalties(row) || row->n_bias > 0 || row->n_banned > 0 ||
           row->mask != NULL;
}

// The logits to choose from, in the scratch, and the first sampler that is still to run. Where
// nothing is left: what the mask allows of the model's own, or all of that, which is a lesser lie
// than a token from nowhere. 0: the mask leaves nothing even of that.
static int modify(const es_kernels *kernels, const es_sample_row *row, int32_t vocab_size,
                  es_sampler_scratch *scratch, row_logits *logits, int32_t *next) {
    const size_t bytes = (size_t)vocab_size * sizeof *logits->values;
    const float *raw = logits->values;
    memcpy(scratch->logits, raw, bytes);
    *next = penalise(row, scratch);
    es_bias(row, scratch->logits);
    es_apply_mask(row, scratch->logits, vocab_size);
    if (find_best(kernels, scratch->logits, vocab_size, logits)) {
        return 1;
    }
    memcpy(scratch->logits, raw, bytes);
    es_apply_mask(row, scratch->logits, vocab_size);
    return find_best(kernels, scratch->logits, vocab_size, logits);
}

// Gumbel-max. The bound spares the logarithms of tokens that cannot win.
// Logits count from their largest: whatever the temperature, they divide to 0 or less.
static es_candidate draw(const es_sample_row *row, const es_running *running) {
    const es_candidate *candidates = running->first;
    const uint64_t key = es_noise_key(row->seed, row->position, ES_TOKEN_STREAM);
    es_candidate best = candidates[0];
    double best_score = -INFINITY;
    for (int32_t i = 0; i < running->n; i++) {
        const uint64_t bits = es_noise_bits(key, (uint64_t)candidates[i].id);
        const double scaled =
            ((double)candidates[i].logit - (double)running->largest) / running->temperature;
        if (scaled + es_gumbel_bound(bits) < best_score) {
            continue;
        }
        const double score = scaled + es_gumbel(bits);
        if (score > best_score || (score == best_score && candidates[i].id < best.id)) {
            best = candidates[i];
            best_score = score;
        }
    }
    return best;
}

static int has_mirostat(const es_sample_row *row) {
    return row->n_samplers > 0 && row->samplers[row->n_samplers - 1] == ES_SAMPLER_MIROSTAT;
}

static void choose(const es_kernels *kernels, row_logits logits, int32_t vocab_size,
                   const es_sample_row *row, es_sampler_scratch *scratch, es_sampled *out) {
    int32_t next = 0;
    if (changes_logits(row) && !modify(kernels, row, vocab_size, scratch, &logits, &next)) {
        out->is_allowed = 0;
        return;
    }
    if (row->temperature == 0.0) {
        out->token = logits.best;
        return;
    }
    const es_running running =
        row->n_samplers > 0
            ? es_run_samplers(row, next, out->mu, vocab_size, logits.largest, scratch)
            : es_filter(kernels, row, logits.values, vocab_size, logits.largest,
                        scratch->candidates);
    const es_candidate chosen = draw(row, &running);
    out->token = chosen.id;
    if (has_mirostat(row)) {
        const double error = es_surprise(&running, chosen.logit) - row->mirostat_tau;
        out->mu -= row->mirostat_eta * error;
    }
}

// --- the report ----------------------------------------------------------------------------------

// The n likeliest, in order, by insertion: n is small.
static int32_t likeliest(const float *logits, int32_t vocab_size, int32_t n, es_candidate *top) {
    int32_t size = 0;
    for (int32_t id = 0; n > 0 && id < vocab_size; id++) {
        const es_candidate next = {logits[id], id};
        if (size == n && !es_before(next, top[n - 1])) {
            continue;
        }
        int32_t at = size < n ? size++ : n - 1;
        for (; at > 0 && es_before(next, top[at - 1]); at--) {
            top[at] = top[at - 1];
        }
        top[at] = next;
    }
    return size;
}

static void report(const es_kernels *kernels, const float *logits, int32_t vocab_size,
                   const es_sample_row *row, float largest, es_sampled *out, int32_t *top_ids,
                   double *top_logprobs) {
    es_candidate top[ES_TOP_MAX];
    const double log_sum =
        (double)largest + es_log64((double)kernels->sum_exp(logits, vocab_size, largest));
    const float value = logits[out->token];
    int32_t rank = 1;
    for (int32_t id = 0; id < vocab_size; id++) {
        rank += logits[id] > value || (logits[id] == value && id < out->token);
    }
    out->rank = rank;
    out->logprob = (double)value - log_sum;
    out->n_top = likeliest(logits, vocab_size, row->n_top, top);
    for (int32_t i = 0; i < out->n_top; i++) {
        top_ids[i] = top[i].id;
        top_logprobs[i] = (double)top[i].logit - log_sum;
    }
}

void es_sample_one(const es_kernels *kernels, const float *logits, int32_t vocab_size,
                   const es_sample_row *row, double mu, es_sampler_scratch *scratch,
                   es_sampled *out, int32_t *top_ids, double *top_logprobs) {
    row_logits raw;
    *out = (es_sampled){.mu = mu, .is_allowed = 1};
    out->is_finite = find_best(kernels, logits, vocab_size, &raw);
    if (!out->is_finite) {
        return;
    }
    if (row->mode == ES_SAMPLE_SCORE) {
        out->token = row->token;
    } else {
        choose(kernels, raw, vocab_size, row, scratch, out);
    }
    if (row->n_top >= 0 && out->is_allowed) {
        report(kernels, logits, vocab_size, row, raw.largest, out, top_ids, top_logprobs);
    }
}
