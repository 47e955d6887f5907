// How plain C multiplies int8: a sum over a line, which compilers make of it what they can.
#ifndef ES_KERNELS_REF_PEAK_H
#define ES_KERNELS_REF_PEAK_H

#include "kernels/ref/simd.h"

enum {
    PEAK_CHAINS = 1,
    PEAK_PRODUCTS = 64, // of one peak_dot
};

typedef struct {
    int8_t bytes[64];
} line;

SIMD line line_load(const uint8_t *p) {
    line out;
    memcpy(out.bytes, p, sizeof out.bytes);
    return out;
}

// Into one lane: lanes apart would take ten times as long.
SIMD i32x16 peak_dot(i32x16 total, line w, line q) {
    int32_t sum = 0;
    for (int i = 0; i < 64; i++) {
        sum += (int16_t)w.bytes[i] * (int16_t)q.bytes[i];
    }
    total.lane[0] = (int32_t)((uint32_t)total.lane[0] + (uint32_t)sum); // wraps
    return total;
}

#endif
