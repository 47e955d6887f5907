// Quant types whose four bits index a table of values: IQ4_NL, IQ4_XS, MXFP4.
#include "quants/dequantize.h"
#include "quants/scalar.h"

enum { HALF_BLOCK = ES_BLOCK / 2 };

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

// Twice the FP4 (E2M1) values. The eighth is minus zero in the specification; GGML has plus zero.
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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
            const int low = block->scales_l[group / 2] >> (group % 2 * 4) & 15;
            const int high = (int)(scales_h >> (2 * group) & 3);
            const float scale = d * (float)((low | high << 4) - 32);
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
