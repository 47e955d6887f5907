// The K-quants: super-blocks of 256 elements, cut into groups of 16 or 32 whose scales, and maybe
// minimums, are quantised themselves. Element order is what makes them differ.
#include "quants/dequantize.h"
#include "quants/scalar.h"

// Two bits of every element in a run of 128: byte i of 32 holds elements i, i+32, i+64, i+96.
static int two_bits(const uint8_t *qs, int element) {
    const int run = element / 128;
    const int shift = 2 * (element % 128 / 32);
    return qs[32 * run + element % 32] >> shift & 3;
}

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

// Scale `group` of 16: its low four bits are a nibble of the first eight bytes (low nibbles first),
// its high two are in the last four.
static int q3_scale(const uint8_t *packed, int group) {
    const int low = packed[group % 8] >> (group / 8 * 4) & 15;
    const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    return (low | high << 4) - 32;
}

void es_dequantize_q3_k(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_q3_k *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_SUPERBLOCK) {
        const float d = half_to_float(block->d);
        for (int i = 0; i < ES_SUPERBLOCK; i++) {
            const float scale = d * (float)q3_scale(block->scales, i / 16);
            const int third_bit = block->hmask[i % 32] >> (i / 32) & 1;
            const int q = two_bits(block->qs, i) | third_bit << 2;
            dst[i] = scale * (float)(q - 4);
        }
    }
}

// Scale and minimum `group` of 8, six bits each. Four of each lie in the low six bits of bytes
// 0-3 and 4-7; the other four have a nibble in bytes 8-11 and their top bits above the first four.
static void unpack_scale_min(const uint8_t *packed, int group, int *scale, int *min) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *min = packed[group + 4] & 63;
        return;
    }
    *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
    *min = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
}

// Byte i of 32 holds element i of group 2k low, of group 2k + 1 high.
static int nibble(const uint8_t *qs, int group, int i) {
    return qs[32 * (group / 2) + i] >> (group % 2 * 4) & 15;
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
                dst[i] = group_d * (float)nibble(block->qs, group, i) - group_min;
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
                const int q = nibble(block->qs, group, i) | fifth_bit << 4;
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
            // In a run of 128, byte i of 64 holds element i low, i + 64 high.
            const int run = i / 128;
            const int low = block->ql[64 * run + i % 64] >> (i % 128 / 64 * 4) & 15;
            const int q = low | two_bits(block->qh, i) << 4;
            const float scale = d * (float)block->scales[i / 16];
            dst[i] = scale * (float)(q - 32);
        }
    }
}
