// Matmul of float weights: runs of fma, which add up in groups. Chains of fma are latency: several
// panels of few rows, or several rows of one panel, run at the same time.
#ifndef ES_KERNELS_GENERIC_MATMUL_FLOAT_H
#define ES_KERNELS_GENERIC_MATMUL_FLOAT_H

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

enum { CHAINS_MAX = 16 };

SIMD f32x16 float_load(es_type type, const uint8_t *p, int64_t k) {
    switch (type) {
    case ES_TYPE_F16:
        return f16_load((const uint16_t *)(p + 32 * k));
    case ES_TYPE_BF16:
        return i32_as_f32(i32_shift_left(u16_load(p + 32 * k), 16));
    default:
        return f32_load((const float *)(p + 64 * k));
    }
}

// f = fma(w, x, f) over elements [k, end) of P panels times R rows.
SIMD void float_run(es_type type, int P, int R, const uint8_t *w, int64_t panel_bytes,
                    const float *x, int64_t stride, int64_t k, int64_t end, f32x16 *f) {
    UNROLL for (int i = 0; i < P * R; i++) { f[i] = f32_zero(); }
    for (; k < end; k++) {
        UNROLL for (int p = 0; p < P; p++) {
            const f32x16 lanes = float_load(type, w + p * panel_bytes, k);
            UNROLL for (int r = 0; r < R; r++) {
                f[p * R + r] = f32_fma(lanes, f32_splat(x[r * stride + k]), f[p * R + r]);
            }
        }
    }
}

// P panels times R rows.
SIMD void matmul_float(es_type type, int P, int R, const es_weight *weight, int64_t panel,
                       const es_activation *a, int64_t first_row, float *out, int64_t ld) {
    const uint8_t *w = weight->data + panel * weight->panel_bytes;
    const float *x = a->x + first_row * a->stride_x;
    f32x16 F[CHAINS_MAX], group[CHAINS_MAX], run[CHAINS_MAX];
    UNROLL for (int i = 0; i < P * R; i++) { F[i] = f32_zero(); }
    for (int64_t first = 0; first < weight->n_cols; first += ES_FLOAT_GROUP) {
        const int64_t left = weight->n_cols - first;
        const int64_t end = first + (left < ES_FLOAT_GROUP ? left : ES_FLOAT_GROUP);
        UNROLL for (int i = 0; i < P * R; i++) { group[i] = f32_zero(); }
        for (int64_t k = first; k < end; k += ES_FLOAT_RUN) {
            const int64_t stop = end - k < ES_FLOAT_RUN ? end : k + ES_FLOAT_RUN;
            float_run(type, P, R, w, weight->panel_bytes, x, a->stride_x, k, stop, run);
            UNROLL for (int i = 0; i < P * R; i++) { group[i] = f32_add(group[i], run[i]); }
        }
        UNROLL for (int i = 0; i < P * R; i++) { F[i] = f32_add(F[i], group[i]); }
    }
    UNROLL for (int p = 0; p < P; p++) {
        UNROLL for (int r = 0; r < R; r++) {
            f32_store(out + (first_row + r) * ld + 16 * p, F[p * R + r]);
        }
    }
}

#endif
