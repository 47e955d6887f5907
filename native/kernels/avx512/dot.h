// Lines and their integer products, for AVX-512 VNNI: a line is one register, and four products
// with their sum are one instruction. It wants unsigned weights: signed ones get 128 added.
#ifndef ES_KERNELS_AVX512_DOT_H
#define ES_KERNELS_AVX512_DOT_H

#include "kernels/avx512/memory_dot.h"
#include "kernels/avx512/simd.h"

enum {
    DOT_TILE = 8,       // rows of a tile over an expanded panel
    DOT_EXPAND_32 = 16, // from this many rows on, panels of 32-wide types are expanded
    DOT_EXPAND_256 = 16,
    DOT_FLOAT_TILE = 12,   // rows of a tile over float weights
    DOT_SIGNED_BIAS = 128, // what signed weights have too much in products
};

typedef __m512i line; // 4 signed or unsigned bytes of each of 16 rows
typedef __m512i sums; // of lines: one int32 a row

SIMD line line_load(const uint8_t *p) { return _mm512_loadu_si512(p); }
SIMD void line_store(uint8_t *p, line x) { _mm512_storeu_si512(p, x); }
SIMD line line_or(line x, line y) { return _mm512_or_si512(x, y); }

// The bits `mask << from` of every byte, moved to `mask << to`.
SIMD line line_field(line x, int from, int to, int mask) {
    if (from > to) {
        x = _mm512_srli_epi16(x, (unsigned)(from - to));
    } else if (to > from) {
        x = _mm512_slli_epi16(x, (unsigned)(to - from));
    }
    return _mm512_and_si512(x, _mm512_set1_epi8((char)(mask << to)));
}

// Bytes of x, below 16, to entries of the table.
SIMD line line_look_up(const int8_t table[16], line x) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), x);
}

// `largest` is the largest weight, or 0 where weights are signed.
SIMD int sums_capacity(int largest) {
    (void)largest;
    return 8;
}

SIMD sums sums_zero(void) { return _mm512_setzero_si512(); }

// Adds line w times quad t of q.
SIMD sums sums_add(sums s, line w, const int8_t *q, int t, int largest) {
    if (largest == 0) {
        w = _mm512_xor_si512(w, _mm512_set1_epi8((char)0x80));
    }
    return dot_quad(s, w, q + 4 * t);
}

// total + the sums; total + scale * the sums.
SIMD i32x16 sums_total(i32x16 total, sums s) { return _mm512_add_epi32(total, s); }

SIMD i32x16 sums_scaled(i32x16 total, sums s, i32x16 scale) {
    return _mm512_add_epi32(total, _mm512_mullo_epi32(s, scale));
}

// Two int16 a row, from two int8 a row: the scales or minimums of two groups.
SIMD i32x16 pairs_load(const int8_t *p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)p));
}

// One of a pair as sums_scaled wants it.
SIMD i32x16 pairs_scale(i32x16 pairs, int odd) {
    return _mm512_srai_epi32(odd ? pairs : _mm512_slli_epi32(pairs, 16), 16);
}

// total + first of pair * q[0] + second of pair * q[1]
SIMD i32x16 pairs_dot(i32x16 total, i32x16 pairs, const int16_t *q) {
    return dot_pair(total, pairs, q);
}

SIMD i32x16 u8_load(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}

SIMD i32x16 u16_load(const uint8_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}

#endif
