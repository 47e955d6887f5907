// Expanded panels as most sets read them: lines one after the other, as they are. A set that
// multiplies them otherwise has these two functions of its own.
#ifndef ES_KERNELS_GENERIC_EXPANDED_H
#define ES_KERNELS_GENERIC_EXPANDED_H

#include "kernels/generic/dot_lines.h"

// Lines 2i and 2i + 1, at p and after.
SIMD void expanded_store(uint8_t *p, line even, line odd) {
    line_store(p, even);
    line_store(p + 64, odd);
}

// Adds n lines times R rows of q to totals; times scale if not null.
SIMD void dot_expanded(es_type type, const uint8_t *lines, int n, const int8_t *q, int64_t stride,
                       int R, const i32x16 *scale, i32x16 *totals) {
    dot_lines(type, EXPANDED, lines, 0, n, q, stride, R, scale, totals);
}

#endif
