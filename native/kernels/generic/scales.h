// Scales and minimums of the 256-wide types: out of their packed bytes, as int8 in pairs of
// groups: (pair, row, 2). Plain loops over bytes, which compilers vectorise.
#ifndef ES_KERNELS_GENERIC_SCALES_H
#define ES_KERNELS_GENERIC_SCALES_H

#include <string.h>

#include "kernels/generic/lines.h"

typedef struct {
    int8_t scale[256]; // 16-wide groups; 32-wide ones use the first half
    int8_t min[256];
} block_scales;

// Four lots of 64 six-bit numbers: low nibbles of `low`, then high nibbles, with two bits each.
SIMD void unpack_six_bits(const uint8_t *low, const uint8_t *high, int8_t *first, int8_t *last) {
    for (int i = 0; i < 64; i++) {
        first[i] = (int8_t)((low[i] & 15) | (high[i] << 4 & 0x30));
        first[64 + i] = (int8_t)((low[64 + i] & 15) | (high[i] << 2 & 0x30));
        last[i] = (int8_t)(low[i] >> 4 | (high[i] & 0x30));
        last[64 + i] = (int8_t)(low[64 + i] >> 4 | (high[i] >> 2 & 0x30));
    }
}

SIMD void unpack_iq4_scales(const uint8_t *low, const uint8_t *high, int8_t *scale) {
    for (int i = 0; i < 32; i++) {
        scale[i] = (int8_t)(((low[i] & 15) | (high[i] << 4 & 0x30)) - 32);
        scale[32 + i] = (int8_t)(((low[32 + i] & 15) | (high[i] << 2 & 0x30)) - 32);
        scale[64 + i] = (int8_t)((low[i] >> 4 | (high[i] & 0x30)) - 32);
        scale[96 + i] = (int8_t)((low[32 + i] >> 4 | (high[i] >> 2 & 0x30)) - 32);
    }
}

SIMD void read_scales(es_type type, const uint8_t *block, block_scales *out) {
    switch (type) {
    case ES_TYPE_Q2_K:
        for (int i = 0; i < 256; i++) {
            out->scale[i] = block[64 + i] & 15;
            out->min[i] = (int8_t)(block[64 + i] >> 4);
        }
        return;
    case ES_TYPE_Q3_K:
        unpack_six_bits(block + 32, block + 32 + 128, out->scale, out->scale + 128);
        for (int i = 0; i < 256; i++) {
            out->scale[i] = (int8_t)(out->scale[i] - 32);
        }
        return;
    case ES_TYPE_Q6_K:
        memcpy(out->scale, block + 32, 256);
        return;
    case ES_TYPE_IQ4_XS:
        unpack_iq4_scales(block + 32, block + 32 + 64, out->scale);
        return;
    default: // Q4_K, Q5_K
        unpack_six_bits(block + 64, block + 64 + 128, out->scale, out->min);
    }
}

#endif
