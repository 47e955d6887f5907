// Quant types whose four bits index a table of values: IQ4_NL, IQ4_XS, MXFP4.
#include "quants/bits.h"
#include "quants/dequantize.h"
#include "quants/scalar.h"

enum { HALF_BLOCK = ES_BLOCK / 2 };

// 32 elements: element i low, element i + 16 high.
static void look_up(const int8_t *values, const uint8_t *qs, float scale, float *restrict dst) {
    for (int i = 0; i < HALF_BLOCK; i++) {
        dst[i] = scale * (float)values[qs[i] & 15];
        dst[i + HALF_BLOCK] = scale * (float)values[qs[i] >> 4];
    }
}

void es_dequantize_iq4_nl(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_iq4_nl *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        look_up(iq4_values, block->qs, half_to_float(block->d), dst);
    }
}

void es_dequantize_iq4_xs(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_iq4_xs *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++) {
        const float d = half_to_float(block->d);
        const uint32_t scales_h = read_u16(block->scales_h);
        for (int group = 0; group < 8; group++, dst += ES_BLOCK) {
            const float scale = d * (float)(iq4_scale(block->scales_l, scales_h, group) - 32);
            look_up(iq4_values, block->qs + HALF_BLOCK * group, scale, dst);
        }
    }
}

void es_dequantize_mxfp4(const void *src, size_t n_blocks, float *restrict dst) {
    const es_block_mxfp4 *block = src;
    for (size_t b = 0; b < n_blocks; b++, block++, dst += ES_BLOCK) {
        look_up(e2m1_doubled, block->qs, e8m0_to_half_float(block->e), dst);
    }
}
