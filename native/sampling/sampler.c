#include "sampling/sampler.h"

#include <math.h>
#include <string.h>

#include "sampling/math64.h"
#include "sampling/noise.h"

enum { TOP_MAX = 64 };

static int ids_are_valid(const int32_t *ids, int32_t n, int32_t vocab_size) {
    for (int32_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab_size) {
            return 0;
        }
    }
    return n >= 0;
}

int es_sample_row_is_valid(const es_sample_row *row, int32_t vocab_size) {
    const int knobs = row->temperature >= 0.0 && row->top_p >= 0.0 && row->min_p >= 0.0 &&
                      row->min_p <= 1.0 && row->repetition_penalty > 0.0 && row->top_k >= 0 &&
                      row->n_top >= -1 && row->n_top <= TOP_MAX && row->n_prompt >= 0 &&
                      row->n_prompt <= row->n_history;
    if (row->mode == ES_SAMPLE_SCORE) {
        return row->token >= 0 && row->token < vocab_size && row->n_top >= 0 &&
               row->n_top <= TOP_MAX;
    }
    return knobs && ids_are_valid(row->history, row->n_history, vocab_size) &&
           ids_are_valid(row->bias_ids, row->n_bias, vocab_size) &&
           ids_are_valid(row->banned, row->n_banned, vocab_size);
}

// --- the modified logits -------------------------------------------------------------------------

static int needs_history(const es_sample_row *row) {
    return row->repetition_penalty != 1.0 || row->presence_penalty != 0.0 ||
           row->frequency_penalty != 0.0;
}

// Repetition over prompt and output, presence and frequency over the output only.
static void penalise(const es_sample_row *row, float *logits, int32_t *counts) {
    for (int32_t i = 0; i < row->n_history; i++) {
        const int32_t id = row->history[i];
        if (counts[id] == 0) { // its first appearance
            const double value = logits[id];
            logits[id] = (float)(value > 0 ? value / row->repetition_penalty
                                           : value * row->repetition_penalty);
            counts[id] = -1;
        }
    }
    for (int32_t i = row->n_prompt; i < row->n_history; i++) {
        const int32_t id = row->history[i];
        counts[id] = counts[id] < 0 ? 1 : counts[id] + 1;
    }
    for (int32_t i = 0; i < row->n_history; i++) {
        const int32_t id = row->history[i];
        if (counts[id] > 0) {
            logits[id] =
                (float)(logits[id] - (row->presence_penalty + row->frequency_penalty * counts[id]));
        }
        counts[id] = 0; // clean for the next row, and seen once
    }
}

static void modify(const es_sample_row *row, float *logits, int32_t *counts) {
    if (needs_history(row)) {
        penalise(row, logits, counts);
    }
    for (int32_t i = 0; i < row->n_bias; i++) {
        const double bias = row->bias_values[i];
        float *at = &logits[row->bias_ids[i]];
        *at = bias <= -100.0 ? -INFINITY : (float)(*at + (bias < 100.0 ? bias : 100.0));
    }
    for (int32_t i = 0; i < row->n_banned; i++) {
        logits[row->banned[i]] = -INFINITY;
    }
}

// --- candidates ----------------------------------------------------------------------------------

// Whether a comes before b: likelier, or as likely and lower.
static int before(es_candidate a, es_candidate b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static void sift(es_candidate *heap, int32_t n, int32_t at) {
    const es_candidate moving = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) {
            break;
        }
        child += child + 1 < n && before(heap[child + 1], heap[child]);
        if (!before(heap[child], moving)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static double weight_of(es_candidate candidate, float largest) {
    return es_exp64((double)candidate.logit - (double)largest);
}

// All tokens that min_p could leave, in id order; every finite one where min_p must wait.
static int32_t gather(const es_sample_row *row, const float *logits, int32_t vocab_size,
                      float largest, es_candidate *candidates) {
    float least = -INFINITY;
    if (row->min_p > 0.0 && (row->top_k == 0 || row->top_p >= 1.0)) {
        // A little under the true bound, for rounding; min_p itself is applied exactly later.
        least = (float)((double)largest + es_log64(row->min_p) - 1e-3);
    }
    int32_t n = 0;
    for (int32_t id = 0; id < vocab_size; id++) {
        if (logits[id] >= least && logits[id] > -INFINITY) {
            candidates[n++] = (es_candidate){logits[id], id};
        }
    }
    return n;
}

// Sorts the likeliest to the array's end, last first: candidates[n - 1] is the likeliest. Stops
// when the next would not be kept, and gives how many are. `total` is what top_p is a share of.
static int32_t take_likeliest(const es_sample_row *row, es_candidate *candidates, int32_t n,
                              float largest, double total) {
    for (int32_t at = n / 2 - 1; at >= 0; at--) {
        sift(candidates, n, at);
    }
    double taken = 0.0;
    int32_t kept = 0;
    while (kept < n) {
        const double weight = weight_of(candidates[0], largest);
        if ((row->top_k > 0 && kept >= row->top_k) ||
            (kept > 0 && row->top_p < 1.0 && total > 0.0 && taken >= row->top_p * total) ||
            (total > 0.0 && weight < row->min_p)) {
            break;
        }
        taken += weight;
        kept++;
        const es_candidate first = candidates[0];
        candidates[0] = candidates[n - kept];
        candidates[n - kept] = first;
        sift(candidates, n - kept, 0);
    }
    return kept;
}

// top_p and min_p within the top_k that are sorted at the array's end already.
static int32_t cut(const es_sample_row *row, const es_candidate *end, int32_t n, float largest) {
    double total = 0.0;
    for (int32_t i = 1; i <= n; i++) {
        total += weight_of(end[-i], largest);
    }
    double taken = 0.0;
    int32_t kept = 0;
    for (int32_t i = 1; i <= n; i++) {
        const double weight = weight_of(end[-i], largest);
        if ((kept > 0 && row->top_p < 1.0 && taken >= row->top_p * total) || weight < row->min_p) {
            break;
        }
        taken += weight;
        kept++;
    }
    return kept;
}

// The tokens that top_k, top_p and min_p leave: *first and how many. There is at least one.
static int32_t filter(const es_kernels *kernels, const es_sample_row *row, const float *logits,
                      int32_t vocab_size, float largest, es_candidate *candidates,
                      es_candidate **first) {
    const int32_t n = gather(row, logits, vocab_size, largest, candidates);
    int32_t kept;
    if (row->top_k > 0) {
        kept = take_likeliest(row, candidates, n, largest, 0.0);
        kept = cut(row, candidates + n, kept, largest);
    } else if (row->top_p < 1.0) {
        const double total = kernels->sum_exp(logits, vocab_size, largest);
        kept = take_likeliest(row, candidates, n, largest, total);
    } else {
        int32_t at = 0;
        for (int32_t i = 0; i < n; i++) {
            if (row->min_p == 0.0 || weight_of(candidates[i], largest) >= row->min_p) {
                candidates[at++] = candidates[i];
            }
        }
        *first = candidates;
        return at;
    }
    *first = candidates + n - kept;
    return kept;
}

// Gumbel-max. The bound spares the logarithms of tokens that cannot win.
// Logits count from their largest: whatever the temperature, they divide to 0 or less.
static int32_t draw(const es_sample_row *row, const es_candidate *candidates, int32_t n,
                    float largest) {
    const uint64_t key = es_noise_key(row->seed, row->position, ES_TOKEN_STREAM);
    int32_t best = candidates[0].id;
    double best_score = -INFINITY;
    for (int32_t i = 0; i < n; i++) {
        const uint64_t bits = es_noise_bits(key, (uint64_t)candidates[i].id);
        const double scaled = ((double)candidates[i].logit - (double)largest) / row->temperature;
        if (scaled + es_gumbel_bound(bits) < best_score) {
            continue;
        }
        const double score = scaled + es_gumbel(bits);
        if (score > best_score || (score == best_score && candidates[i].id < best)) {
            best = candidates[i].id;
            best_score = score;
        }
    }
    return best;
}

static int32_t choose(const es_kernels *kernels, const float *raw, int32_t vocab_size,
                      const es_sample_row *row, es_sampler_scratch *scratch, int64_t raw_best,
                      float raw_largest) {
    const float *logits = raw;
    int64_t best = raw_best;
    float largest = raw_largest;
    if (needs_history(row) || row->n_bias > 0 || row->n_banned > 0) {
        int32_t finite;
        memcpy(scratch->logits, raw, (size_t)vocab_size * sizeof *raw);
        modify(row, scratch->logits, scratch->counts);
        kernels->argmax(scratch->logits, vocab_size, &best, &largest, &finite);
        logits = scratch->logits;
        if (!finite) { // everything is banned: the model's own choice is the lesser lie
            logits = raw;
            best = raw_best;
            largest = raw_largest;
        }
    }
    if (row->temperature == 0.0) {
        return (int32_t)best;
    }
    es_candidate *first;
    const int32_t n =
        filter(kernels, row, logits, vocab_size, largest, scratch->candidates, &first);
    return draw(row, first, n, largest);
}

// --- the report ----------------------------------------------------------------------------------

// The n likeliest, in order, by insertion: n is small.
static int32_t likeliest(const float *logits, int32_t vocab_size, int32_t n, es_candidate *top) {
    int32_t size = 0;
    for (int32_t id = 0; n > 0 && id < vocab_size; id++) {
        const es_candidate next = {logits[id], id};
        if (size == n && !before(next, top[n - 1])) {
            continue;
        }
        int32_t at = size < n ? size++ : n - 1;
        for (; at > 0 && before(next, top[at - 1]); at--) {
            top[at] = top[at - 1];
        }
        top[at] = next;
    }
    return size;
}

static void report(const es_kernels *kernels, const float *logits, int32_t vocab_size,
                   const es_sample_row *row, float largest, es_sampled *out, int32_t *top_ids,
                   double *top_logprobs) {
    es_candidate top[TOP_MAX];
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
                   const es_sample_row *row, es_sampler_scratch *scratch, es_sampled *out,
                   int32_t *top_ids, double *top_logprobs) {
    int64_t best;
    float largest;
    *out = (es_sampled){0};
    kernels->argmax(logits, vocab_size, &best, &largest, &out->is_finite);
    if (!out->is_finite) {
        return;
    }
    out->token = row->mode == ES_SAMPLE_SCORE
                     ? row->token
                     : choose(kernels, logits, vocab_size, row, scratch, best, largest);
    if (row->n_top >= 0) {
        report(kernels, logits, vocab_size, row, largest, out, top_ids, top_logprobs);
    }
}
