// The most int8 products that a set's instructions give, from registers and the nearest cache:
// what a matmul's rate is a fraction of. Sets say in peak.h how they multiply, and how many
// products that is.
#ifndef ES_KERNELS_GENERIC_PEAK_H
#define ES_KERNELS_GENERIC_PEAK_H

#include <string.h>

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

static int64_t int8_peak(int64_t n_rounds) {
    _Alignas(64) uint8_t w[64];
    _Alignas(64) uint8_t q[64];
    memset(w, 3, sizeof w);
    memset(q, 2, sizeof q);
    const line weights = line_load(w);
    const uint8_t *activations = q;
    i32x16 totals[PEAK_CHAINS];
    for (int c = 0; c < PEAK_CHAINS; c++) {
        totals[c] = i32_splat(c);
    }
    for (int64_t i = 0; i < n_rounds; i++) {
        UNROLL for (int c = 0; c < PEAK_CHAINS; c++) {
            FORGET(activations); // or one product would be computed, once
            totals[c] = peak_dot(totals[c], weights, line_load(activations));
        }
    }
    _Alignas(64) int32_t used[PEAK_CHAINS * ES_LANES];
    for (int c = 0; c < PEAK_CHAINS; c++) {
        i32_store(used + c * ES_LANES, totals[c]);
    }
    const int32_t *kept = used;
    __asm__ volatile("" : : "r"(kept) : "memory");
    return n_rounds * PEAK_CHAINS * PEAK_PRODUCTS * 2; // a product and its addition
}

#endif
