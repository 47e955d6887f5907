// Expanded panels for ARM's int8 matrix products: an instruction multiplies two weight rows with
// two rows of activations, 8 elements deep. Two lines are zipped, so that a register holds 8
// elements of two weight rows; rows of activations go in pairs.
#ifndef ES_KERNELS_I8MM_EXPANDED_H
#define ES_KERNELS_I8MM_EXPANDED_H

#include "kernels/generic/dot_lines.h"

_Static_assert(DOT_TILE % 2 == 0, "rows go in pairs");

// Of two rows of activations: register i has {0, 1} times weight rows {2i, 2i + 1}.
typedef struct {
    int32x4_t row_pair[8];
} pair_sums;

SIMD void zipped_store(uint8_t *p, uint8x16_t x, uint8x16_t y) {
    const uint32x4_t of_x = vreinterpretq_u32_u8(x), of_y = vreinterpretq_u32_u8(y);
    vst1q_u8(p, vreinterpretq_u8_u32(vzip1q_u32(of_x, of_y)));
    vst1q_u8(p + 16, vreinterpretq_u8_u32(vzip2q_u32(of_x, of_y)));
}

// Lines 2i and 2i + 1, at p and after.
SIMD void expanded_store(uint8_t *p, line even, line odd) {
    zipped_store(p, even.a, odd.a);
    zipped_store(p + 32, even.b, odd.b);
    zipped_store(p + 64, even.c, odd.c);
    zipped_store(p + 96, even.d, odd.d);
}

// Row 0 or 1 of the pair.
SIMD int32x4_t quarter_of(const pair_sums *s, int quarter, int row) {
    const int64x2_t x = vreinterpretq_s64_s32(s->row_pair[2 * quarter]);
    const int64x2_t y = vreinterpretq_s64_s32(s->row_pair[2 * quarter + 1]);
    return vreinterpretq_s32_s64(row == 0 ? vzip1q_s64(x, y) : vzip2q_s64(x, y));
}

SIMD sums sums_of(const pair_sums *s, int row) {
    return (sums){quarter_of(s, 0, row), quarter_of(s, 1, row), quarter_of(s, 2, row),
                  quarter_of(s, 3, row)};
}

// Adds n lines times R rows of q to totals; times scale if not null. Weights are below 128, or
// signed: there are no others.
SIMD void dot_expanded(es_type type, const uint8_t *lines, int n, const int8_t *q, int64_t stride,
                       int R, const i32x16 *scale, i32x16 *totals) {
    (void)type;
    pair_sums s[ROWS_MAX / 2];
    UNROLL for (int r = 0; r < R / 2; r++) {
        UNROLL for (int i = 0; i < 8; i++) { s[r].row_pair[i] = vdupq_n_s32(0); }
    }
    UNROLL for (int t = 0; t < n; t += 2) {
        int8x16_t rows[ROWS_MAX / 2];
        UNROLL for (int r = 0; r < R / 2; r++) {
            const int8_t *first = q + 2 * r * stride + 4 * t;
            rows[r] = vcombine_s8(vld1_s8(first), vld1_s8(first + stride));
        }
        UNROLL for (int i = 0; i < 8; i++) {
            const int8x16_t w = vreinterpretq_s8_u8(vld1q_u8(lines + 64 * t + 16 * i));
            UNROLL for (int r = 0; r < R / 2; r++) {
                s[r].row_pair[i] = vmmlaq_s32(s[r].row_pair[i], rows[r], w);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) {
        const sums of_row = sums_of(&s[r / 2], r % 2);
        totals[r] =
            scale == NULL ? sums_total(totals[r], of_row) : sums_scaled(totals[r], of_row, *scale);
    }
}

#endif
