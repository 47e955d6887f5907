// Integer products of lines, for AVX-VNNI: four products with their sum are one instruction for 8
// rows. It wants unsigned weights: signed ones get 128 added.
#ifndef ES_KERNELS_AVXVNNI_DOT_H
#define ES_KERNELS_AVXVNNI_DOT_H

#include <string.h>

#include "kernels/avx2/lines.h"

enum {
    DOT_TILE = 4,      // rows of a tile over an expanded panel
    DOT_EXPAND_32 = 8, // from this many rows on, panels of 32-wide types are expanded
    DOT_EXPAND_256 = 8,
    DOT_FLOAT_TILE = 6,    // rows of a tile over float weights
    DOT_SIGNED_BIAS = 128, // what signed weights have too much in products
};

typedef i32x16 sums; // of lines: one int32 a row

// `largest` is the largest weight, or 0 where weights are signed.
SIMD int sums_capacity(int largest) {
    (void)largest;
    return 8;
}

SIMD sums sums_zero(void) { return i32_splat(0); }

// Adds line w times quad t of q.
SIMD sums sums_add(sums s, line w, const int8_t *q, int t, int largest) {
    int32_t quad;
    memcpy(&quad, q + 4 * t, sizeof quad);
    const __m256i all = _mm256_set1_epi32(quad);
    if (largest == 0) {
        const __m256i sign = _mm256_set1_epi8((char)0x80);
        w = (line){_mm256_xor_si256(w.low, sign), _mm256_xor_si256(w.high, sign)};
    }
    return opaque((sums){_mm256_dpbusd_avx_epi32(s.low, w.low, all),
                         _mm256_dpbusd_avx_epi32(s.high, w.high, all)});
}

// total + the sums; total + scale * the sums.
SIMD i32x16 sums_total(i32x16 total, sums s) { return i32_add(total, s); }

SIMD i32x16 sums_scaled(i32x16 total, sums s, i32x16 scale) {
    return (i32x16){_mm256_add_epi32(total.low, _mm256_mullo_epi32(s.low, scale.low)),
                    _mm256_add_epi32(total.high, _mm256_mullo_epi32(s.high, scale.high))};
}

// One of a pair as sums_scaled wants it.
SIMD i32x16 pairs_scale(i32x16 pairs, int odd) {
    return i32_shift_right(odd ? pairs : i32_shift_left(pairs, 16), 16);
}

// total + first of pair * q[0] + second of pair * q[1]
SIMD i32x16 pairs_dot(i32x16 total, i32x16 pairs, const int16_t *q) {
    int32_t two;
    memcpy(&two, q, sizeof two);
    const __m256i all = _mm256_set1_epi32(two);
    return (i32x16){_mm256_dpwssd_avx_epi32(total.low, pairs.low, all),
                    _mm256_dpwssd_avx_epi32(total.high, pairs.high, all)};
}

#endif
