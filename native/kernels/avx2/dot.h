// Integer products of lines, for AVX2 without VNNI.
//
// maddubs multiplies unsigned weights with signed activations and adds neighbours into 16 bits,
// saturating, so sums of lines stay in 16 bits as long as they provably fit: 8 lines of weights up
// to 15 (8 * 2 * 15 * 127 = 30480), 4 up to 31, 2 up to 63. Signed weights lend their sign to the
// activations, one line at a time: 2 * 128 * 127 = 32512 fits.
#ifndef ES_KERNELS_AVX2_DOT_H
#define ES_KERNELS_AVX2_DOT_H

#include <string.h>

#include "kernels/avx2/lines.h"

enum {
    DOT_TILE = 4,      // rows of a tile over an expanded panel
    DOT_EXPAND_32 = 8, // from this many rows on, panels of 32-wide types are expanded
    DOT_EXPAND_256 = 4,
    DOT_FLOAT_TILE = 6,  // rows of a tile over float weights
    DOT_SIGNED_BIAS = 0, // what signed weights have too much in products
};

typedef i32x16 sums; // of lines: two int16 a row

// `largest` is the largest weight, or 0 where weights are signed.
SIMD int sums_capacity(int largest) {
    return largest == 0 ? 1 : largest <= 15 ? 8 : largest <= 31 ? 4 : 2;
}

SIMD sums sums_zero(void) { return (sums){_mm256_setzero_si256(), _mm256_setzero_si256()}; }

SIMD __m256i half_products(__m256i w, __m256i q, int largest) {
    if (largest == 0) {
        return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
    }
    return _mm256_maddubs_epi16(w, q);
}

// Adds line w times quad t of q.
SIMD sums sums_add(sums s, line w, const int8_t *q, int t, int largest) {
    int32_t quad;
    memcpy(&quad, q + 4 * t, sizeof quad);
    const __m256i all = _mm256_set1_epi32(quad);
    s.low = _mm256_add_epi16(s.low, half_products(w.low, all, largest));
    s.high = _mm256_add_epi16(s.high, half_products(w.high, all, largest));
    return opaque(s);
}

// total + the sums; total + scale * the sums.
SIMD i32x16 sums_scaled(i32x16 total, sums s, i32x16 scale) {
    return (i32x16){_mm256_add_epi32(total.low, _mm256_madd_epi16(s.low, scale.low)),
                    _mm256_add_epi32(total.high, _mm256_madd_epi16(s.high, scale.high))};
}

SIMD i32x16 sums_total(i32x16 total, sums s) {
    const __m256i one = _mm256_set1_epi16(1);
    return opaque(sums_scaled(total, s, (i32x16){one, one}));
}

// One of a pair as sums_scaled wants it: in both halves of its row's lane.
SIMD __m256i half_doubled(__m256i pairs, int odd) {
    const __m128i even = _mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13);
    const __m128i order = _mm_add_epi8(even, _mm_set1_epi8((char)(2 * odd)));
    return _mm256_shuffle_epi8(pairs, _mm256_broadcastsi128_si256(order));
}

SIMD i32x16 pairs_scale(i32x16 pairs, int odd) {
    return (i32x16){half_doubled(pairs.low, odd), half_doubled(pairs.high, odd)};
}

// total + first of pair * q[0] + second of pair * q[1]
SIMD i32x16 pairs_dot(i32x16 total, i32x16 pairs, const int16_t *q) {
    int32_t two;
    memcpy(&two, q, sizeof two);
    const __m256i all = _mm256_set1_epi32(two);
    return (i32x16){_mm256_add_epi32(total.low, _mm256_madd_epi16(pairs.low, all)),
                    _mm256_add_epi32(total.high, _mm256_madd_epi16(pairs.high, all))};
}

#endif
