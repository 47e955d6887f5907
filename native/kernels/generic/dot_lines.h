// The inner loop of every integer matmul: a group of weight lines times R rows of activations.
#ifndef ES_KERNELS_GENERIC_DOT_LINES_H
#define ES_KERNELS_GENERIC_DOT_LINES_H

#include "kernels/generic/lines.h"
#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

// Accumulators are arrays of this size, of which the first R are used: a size that depends on a
// parameter would make them variable-length arrays, on the stack.
enum { ROWS_MAX = 12 };

enum { FETCH_AHEAD = 2048 }; // bytes

// Panels, or a stretch of one, and R rows of activations from `first_row`.
typedef struct {
    const uint8_t *panel; // packed blocks, or expanded ones
    int64_t panel_bytes;  // from one panel to the next
    int64_t n_blocks;
    const es_activation *a;
    int64_t first_block; // of the activations that belong to panel's first
    int64_t first_row;
    float *out; // (R, ld), at the panel's first lane
    int64_t ld;
} panel_rows;

// Processors fetch a stream ahead within a page of 4 KiB; this asks for what lies past its end too.
SIMD void fetch_ahead(const uint8_t *block, int block_bytes) {
    for (int i = 0; i < block_bytes; i += 64) {
        __builtin_prefetch(block + FETCH_AHEAD + i);
    }
}

// How a line comes about: from bits of a packed run, or as it lies in an expanded one.
typedef enum { PACKED, EXPANDED } line_source;

SIMD line weight_line(es_type type, line_source source, const uint8_t *run, int i) {
    return source == PACKED ? packed_line(type, run, i) : stored_line(run, i);
}

// Adds lines [first, first + n) of a run, times R rows of q, to totals; times scale if not null.
SIMD void dot_lines(es_type type, line_source source, const uint8_t *run, int first, int n,
                    const int8_t *q, int64_t stride, int R, const i32x16 *scale, i32x16 *totals) {
    const int largest = format_of(type).largest;
    const int span = sums_capacity(largest) < n ? sums_capacity(largest) : n;
    UNROLL for (int i = first; i < first + n; i += span) {
        sums s[ROWS_MAX];
        UNROLL for (int r = 0; r < R; r++) { s[r] = sums_zero(); }
        UNROLL for (int t = i; t < i + span; t++) {
            const line w = weight_line(type, source, run, t);
            UNROLL for (int r = 0; r < R; r++) {
                s[r] = sums_add(s[r], w, q + r * stride, t, largest);
            }
        }
        UNROLL for (int r = 0; r < R; r++) {
            totals[r] =
                scale == NULL ? sums_total(totals[r], s[r]) : sums_scaled(totals[r], s[r], *scale);
        }
    }
}

#endif
