// top_k, top_p and min_p, in this order and before temperature: what most requests ask for.
#include <math.h>

#include "sampling/candidates.h"
#include "sampling/math64.h"

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
    es_heapify(candidates, n);
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
        es_pop(candidates, n - kept);
        kept++;
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

es_running es_filter(const es_kernels *kernels, const es_sample_row *row, const float *logits,
                     int32_t vocab_size, float largest, es_candidate *candidates) {
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
        return (es_running){candidates, at, largest, row->temperature};
    }
    return (es_running){candidates + n - kept, kept, largest, row->temperature};
}
