// Lines of AVX2, which avxvnni has too: two registers of 8 rows.
#ifndef ES_KERNELS_AVX2_LINES_H
#define ES_KERNELS_AVX2_LINES_H

#include "kernels/avx2/simd.h"

typedef i32x16 line; // 4 signed or unsigned bytes of each of 16 rows

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

// The compiler must not look through sums: it would turn chains of them into trees, whose many
// intermediate sums do not fit into registers (half the speed).
SIMD i32x16 opaque(i32x16 x) {
    __asm__("" : "+x"(x.low), "+x"(x.high));
    return x;
}

// Two int16 a row, from two int8 a row: the scales or minimums of two groups.
SIMD i32x16 pairs_load(const int8_t *p) {
    return (i32x16){_mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)p)),
                    _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(p + 16)))};
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
