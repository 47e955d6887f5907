// The plain quant types: blocks of 32 elements with one scale, and maybe one minimum, each.
#include "quants/dequantize.h"
#include "quants/scalar.h"

enum { HALF_BLOCK = ES_BLOCK / 2 };

// Element i's fifth bit, in place.
static int fifth_bit(const uint8_t *qh, int i) { return (qh[i / 8] >> (i % 8) & 1) << 4; }

void es_dequantize_q4_0(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q4_0 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < HALF_BLOCK; i++) {
            dst[i] = d * (float)((block->qs[i] & 15) - 8);
            dst[i + HALF_BLOCK] = d * (float)((block->qs[i] >> 4) - 8);
        }
    }
}

void es_dequantize_q4_1(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q4_1 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        const float d = half_to_float(block->d);
        const float m = half_to_float(block->m);
        for (int i = 0; i < HALF_BLOCK; i++) {
            dst[i] = d * (float)(block->qs[i] & 15) + m;
            dst[i + HALF_BLOCK] = d * (float)(block->qs[i] >> 4) + m;
        }
    }
}

void es_dequantize_q5_0(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q5_0 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < HALF_BLOCK; i++) {
            const int low = (block->qs[i] & 15) | fifth_bit(block->qh, i);
            const int high = block->qs[i] >> 4 | fifth_bit(block->qh, i + HALF_BLOCK);
            dst[i] = d * (float)(low - 16);
            dst[i + HALF_BLOCK] = d * (float)(high - 16);
        }
    }
}

void es_dequantize_q5_1(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q5_1 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        const float d = half_to_float(block->d);
        const float m = half_to_float(block->m);
        for (int i = 0; i < HALF_BLOCK; i++) {
            const int low = (block->qs[i] & 15) | fifth_bit(block->qh, i);
            const int high = block->qs[i] >> 4 | fifth_bit(block->qh, i + HALF_BLOCK);
            dst[i] = d * (float)low + m;
            dst[i + HALF_BLOCK] = d * (float)high + m;
        }
    }
}

void es_dequantize_q8_0(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q8_0 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < ES_BLOCK; i++) {
            dst[i] = d * (float)block->qs[i];
        }
    }
}
