// How plain C multiplies int8: in arrays that the compiler makes of it what it can.
#ifndef ES_KERNELS_REF_PEAK_H
#define ES_KERNELS_REF_PEAK_H

#include "kernels/ref/simd.h"

enum { PEAK_CHAINS = 4 };

typedef struct {
    int8_t bytes[64];
} line;

SIMD line line_load(const uint8_t *p) {
    line out;
    memcpy(out.bytes, p, sizeof out.bytes);
    return out;
}

SIMD i32x16 peak_dot(i32x16 total, line w, line q) {
    for (int i = 0; i < 64; i++) {
        total.lane[i / 4] += w.bytes[i] * q.bytes[i];
    }
    return total;
}

#endif
