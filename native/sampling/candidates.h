// Tokens in the running: their order by likelihood, and a heap that gives them in it.
#ifndef ES_SAMPLING_CANDIDATES_H
#define ES_SAMPLING_CANDIDATES_H

#include "sampling/sampler.h"

// Whether a comes before b: likelier, or as likely and lower.
static inline int es_before(es_candidate a, es_candidate b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

static inline void es_sift(es_candidate *heap, int32_t n, int32_t at) {
    const es_candidate moving = heap[at];
    for (;;) {
        int32_t child = 2 * at + 1;
        if (child >= n) {
            break;
        }
        child += child + 1 < n && es_before(heap[child + 1], heap[child]);
        if (!es_before(heap[child], moving)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
}

static inline void es_heapify(es_candidate *heap, int32_t n) {
    for (int32_t at = n / 2 - 1; at >= 0; at--) {
        es_sift(heap, n, at);
    }
}

// Moves the first of a heap of n behind its end, which is one place nearer then.
static inline void es_pop(es_candidate *heap, int32_t n) {
    const es_candidate first = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = first;
    es_sift(heap, n - 1, 0);
}

// The tokens in the running, in any order, and the temperature that they are still to be divided
// by. `first` lies within the scratch's candidates.
typedef struct {
    es_candidate *first;
    int32_t n;
    float largest; // logit
    double temperature;
} es_running;

// Those that top_k, top_p and min_p leave. There is at least one.
es_running es_filter(const es_kernels *kernels, const es_sample_row *row, const float *logits,
                     int32_t vocab_size, float largest, es_candidate *candidates);

// Those that the row's samplers from number `next` on leave; `mu` is mirostat's. The logits are
// the scratch's. There is at least one.
es_running es_run_samplers(const es_sample_row *row, int32_t next, double mu, int32_t vocab_size,
                           float largest, es_sampler_scratch *scratch);

// How surprising token `id`, with that logit, is among those in the running: bits.
double es_surprise(const es_running *running, float logit);

#endif
