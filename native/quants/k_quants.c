// The K-quants: super-blocks of 256 elements, cut into groups of 16 or 32 whose scales, and maybe
// minimums, are quantised themselves. Element order is what makes them differ.
#include "quants/bits.h"
#include "quants/dequantize.h"
#include "quants/scalar.h"

void es_dequantize_q2_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q2_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_SUPERBLOCK) {
        const float d = half_to_float(block->d);
        const float dmin = half_to_float(block->dmin);
        for (int i = 0; i < ES_SUPERBLOCK; i++) {
            const uint8_t packed = block->scales[i / 16];
            const float scale = d * (float)(packed & 15);
            const float min = dmin * (float)(packed >> 4);
            dst[i] = scale * (float)two_bits(block->qs, i) - min;
        }
    }
}

void es_dequantize_q3_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q3_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_SUPERBLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < ES_SUPERBLOCK; i++) {
            const float scale = d * (float)(q3_scale(block->scales, i / 16) - 32);
            const int third_bit = block->hmask[i % 32] >> (i / 32) & 1;
            const int q = two_bits(block->qs, i) | third_bit << 2;
            dst[i] = scale * (float)(q - 4);
        }
    }
}

void es_dequantize_q4_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q4_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++) {
        const float d = half_to_float(block->d);
        const float dmin = half_to_float(block->dmin);
        for (int group = 0; group < 8; group++, dst += 32) {
            int scale, min;
            unpack_scale_min(block->scales, group, &scale, &min);
            const float group_d = d * (float)scale;
            const float group_min = dmin * (float)min;
            for (int i = 0; i < 32; i++) {
                dst[i] = group_d * (float)group_nibble(block->qs, group, i) - group_min;
            }
        }
    }
}

void es_dequantize_q5_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q5_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++) {
        const float d = half_to_float(block->d);
        const float dmin = half_to_float(block->dmin);
        for (int group = 0; group < 8; group++, dst += 32) {
            int scale, min;
            unpack_scale_min(block->scales, group, &scale, &min);
            const float group_d = d * (float)scale;
            const float group_min = dmin * (float)min;
            for (int i = 0; i < 32; i++) {
                const int fifth_bit = block->qh[i] >> group & 1;
                const int q = group_nibble(block->qs, group, i) | fifth_bit << 4;
                dst[i] = group_d * (float)q - group_min;
            }
        }
    }
}

void es_dequantize_q6_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q6_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_SUPERBLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < ES_SUPERBLOCK; i++) {
            const int q = run_nibble(block->ql, i) | two_bits(block->qh, i) << 4;
            const float scale = d * (float)block->scales[i / 16];
            dst[i] = scale * (float)(q - 32);
        }
    }
}
