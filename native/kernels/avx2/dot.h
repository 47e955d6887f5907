// Lines and their integer products, for AVX2 without VNNI: a line is two registers of 8 rows.
//
// maddubs multiplies unsigned weights with signed activations and adds neighbours into 16 bits,
// saturating, so sums of lines stay in 16 bits as long as they provably fit: 8 lines of weights up
// to 15 (8 * 2 * 15 * 127 = 30480), 4 up to 31, 2 up to 63. Signed weights lend their sign to the
// activations, one line at a time: 2 * 128 * 127 = 32512 fits.
#ifndef ES_KERNELS_AVX2_DOT_H
#define ES_KERNELS_AVX2_DOT_H

#include <string.h>

#include "kernels/avx2/simd.h"

enum {
    DOT_TILE = 4,      // rows of a tile over an expanded panel
    DOT_EXPAND_32 = 8, // from this many rows on, panels of 32-wide types are expanded
    DOT_EXPAND_256 = 4,
    DOT_FLOAT_TILE = 6,  // rows of a tile over float weights
    DOT_SIGNED_BIAS = 0, // what signed weights have too much in products
};

typedef i32x16 line; // 4 signed or unsigned bytes of each of 16 rows
typedef i32x16 sums; // of lines: two int16 a row

SIMD line line_load(const uint8_t *p) { return i32_load((const int32_t *)p); }
SIMD void line_store(uint8_t *p, line x) { i32_store((int32_t *)p, x); }
SIMD line line_or(line x, line y) { return i32_or(x, y); }

// The bits `mask << from` of every byte, moved to `mask << to`.
SIMD __m256i half_field(__m256i x, int from, int to, int mask) {
    if (from > to) {
        x = _mm256_srli_epi16(x, from - to);
    } else if (to > from) {
        x = _mm256_slli_epi16(x, to - from);
    }
    return _mm256_and_si256(x, _mm256_set1_epi8((char)(mask << to)));
}

SIMD line line_field(line x, int from, int to, int mask) {
    return (line){half_field(x.low, from, to, mask), half_field(x.high, from, to, mask)};
}

// Bytes of x, below 16, to entries of the table.
SIMD line line_look_up(const int8_t table[16], line x) {
    const __m256i entries = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (line){_mm256_shuffle_epi8(entries, x.low), _mm256_shuffle_epi8(entries, x.high)};
}

// `largest` is the largest weight, or 0 where weights are signed.
SIMD int sums_capacity(int largest) {
    return largest == 0 ? 1 : largest <= 15 ? 8 : largest <= 31 ? 4 : 2;
}

// The compiler must not look through sums: it would turn chains of them into trees, whose many
// intermediate sums do not fit into registers (half the speed).
SIMD i32x16 opaque(i32x16 x) {
    __asm__("" : "+x"(x.low), "+x"(x.high));
    return x;
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

// Two int16 a row, from two int8 a row: the scales or minimums of two groups.
SIMD i32x16 pairs_load(const int8_t *p) {
    return (i32x16){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)),
                    _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16)))};
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

SIMD i32x16 u8_load(const uint8_t *p) {
    const __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return (i32x16){_mm256_cvtepu8_epi32(bytes),
                    _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(bytes, bytes))};
}

SIMD i32x16 u16_load(const uint8_t *p) {
    return (i32x16){_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)),
                    _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(p + 16)))};
}

#endif
