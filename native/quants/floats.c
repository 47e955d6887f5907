// Weights that are not quantised: F32, F16, BF16. A block is one element.
#include <string.h>

#include "quants/dequantize.h"
#include "quants/scalar.h"

void es_dequantize_f32(const void *src, size_t n_blocks, float *restrict dst) {
    memcpy(dst, src, n_blocks * sizeof *dst);
}

void es_dequantize_f16(const void *src, size_t n_blocks, float *restrict dst) {
    const es_half *halves = src;
    for (size_t i = 0; i < n_blocks; i++) {
        dst[i] = half_to_float(halves[i]);
    }
}

void es_dequantize_bf16(const void *src, size_t n_blocks, float *restrict dst) {
    const uint8_t *bytes = src;
    for (size_t i = 0; i < n_blocks; i++) {
        dst[i] = bfloat_to_float(bytes + 2 * i);
    }
}
