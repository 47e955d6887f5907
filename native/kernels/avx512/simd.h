// The simd layer for AVX-512 (F, BW, VL, DQ): 16 lanes are one register. See ref/simd.h for what
// each operation means.
#ifndef ES_KERNELS_AVX512_SIMD_H
#define ES_KERNELS_AVX512_SIMD_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD      static inline __attribute__((always_inline))
#define SIMD_LONG SIMD

enum { SIMD_REGISTERS = 32 };

typedef __m512 f32x16;
typedef __m512i i32x16;
typedef __mmask16 mask16;

// --- masks ---------------------------------------------------------------------------------------

SIMD mask16 mask_first(int64_t n) {
    return (mask16)(n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1u);
}

SIMD mask16 mask_and(mask16 a, mask16 b) { return (mask16)(a & b); }
SIMD mask16 mask_or(mask16 a, mask16 b) { return (mask16)(a | b); }
SIMD mask16 mask_except(mask16 a, mask16 b) { return (mask16)(a & ~b); }
SIMD int mask_any(mask16 a) { return a != 0; }

// --- float32 -------------------------------------------------------------------------------------

SIMD f32x16 f32_splat(float x) { return _mm512_set1_ps(x); }
SIMD f32x16 f32_zero(void) { return _mm512_setzero_ps(); }

SIMD f32x16 f32_load(const float *p) { return _mm512_loadu_ps(p); }
SIMD f32x16 f32_load_part(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps(mask_first(n), p);
}
SIMD void f32_store(float *p, f32x16 a) { _mm512_storeu_ps(p, a); }
SIMD void f32_store_part(float *p, f32x16 a, int64_t n) {
    _mm512_mask_storeu_ps(p, mask_first(n), a);
}

SIMD void f32_load_pairs(const float *p, f32x16 *even, f32x16 *odd) {
    const __m512i evens =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
    const __m512 a = _mm512_loadu_ps(p);
    const __m512 b = _mm512_loadu_ps(p + 16);
    *even = _mm512_permutex2var_ps(a, evens, b);
    *odd = _mm512_permutex2var_ps(a, odds, b);
}

SIMD void f32_store_pairs(float *p, f32x16 even, f32x16 odd) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, low, odd));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even, high, odd));
}

SIMD f32x16 f32_add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
SIMD f32x16 f32_sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
SIMD f32x16 f32_mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
SIMD f32x16 f32_div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
SIMD f32x16 f32_sqrt(f32x16 a) { return _mm512_sqrt_ps(a); }
SIMD f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }
SIMD f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fnmadd_ps(a, b, c); }

// These give their second operand unless the first is greater, or less: a > b ? a : b.
SIMD f32x16 f32_max(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }
SIMD f32x16 f32_min(f32x16 a, f32x16 b) { return _mm512_min_ps(a, b); }
SIMD f32x16 f32_abs(f32x16 a) { return _mm512_abs_ps(a); }
SIMD f32x16 f32_neg(f32x16 a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

SIMD mask16 f32_lt(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
SIMD mask16 f32_gt(f32x16 a, f32x16 b) { return f32_lt(b, a); }
SIMD mask16 f32_eq(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
SIMD f32x16 f32_select(mask16 mask, f32x16 a, f32x16 b) { return _mm512_mask_blend_ps(mask, b, a); }

SIMD float f32_reduce_add(f32x16 a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

SIMD float f32_reduce_max(f32x16 a) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// --- halfs ---------------------------------------------------------------------------------------

SIMD f32x16 f16_load(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

SIMD f32x16 f16_load_part(const uint16_t *p, int64_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask_first(n), p));
}

SIMD void f16_store(uint16_t *p, f32x16 a) {
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

SIMD void f16_store_part(uint16_t *p, f32x16 a, int64_t n) {
    _mm256_mask_storeu_epi16(p, mask_first(n), _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
}

// --- small integers ------------------------------------------------------------------------------

SIMD f32x16 i8_widen(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }

SIMD f32x16 i8_load(const uint8_t *p) { return i8_widen(_mm_loadu_si128((const __m128i *)p)); }

// Of nibbles, which are integers plus 8.
SIMD f32x16 i4_widen(__m128i bytes) {
    return i8_widen(_mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

SIMD f32x16 i4_load_low(const uint8_t *p) { return i4_widen(_mm_loadu_si128((const __m128i *)p)); }

SIMD f32x16 i4_load_high(const uint8_t *p) {
    return i4_widen(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)p), 4));
}

// --- int32 ---------------------------------------------------------------------------------------

SIMD i32x16 i32_splat(int32_t x) { return _mm512_set1_epi32(x); }
SIMD i32x16 i32_iota(void) {
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

SIMD i32x16 i32_load(const int32_t *p) { return _mm512_loadu_si512(p); }
SIMD void i32_store(int32_t *p, i32x16 a) { _mm512_storeu_si512(p, a); }
SIMD void i32_store_i8(int8_t *p, i32x16 a) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}

SIMD i32x16 i32_add(i32x16 a, i32x16 b) { return _mm512_add_epi32(a, b); }
SIMD i32x16 i32_sub(i32x16 a, i32x16 b) { return _mm512_sub_epi32(a, b); }
SIMD i32x16 i32_max(i32x16 a, i32x16 b) { return _mm512_max_epi32(a, b); }
SIMD i32x16 i32_and(i32x16 a, i32x16 b) { return _mm512_and_si512(a, b); }
SIMD i32x16 i32_or(i32x16 a, i32x16 b) { return _mm512_or_si512(a, b); }
SIMD i32x16 i32_shift_left(i32x16 a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
SIMD i32x16 i32_shift_right(i32x16 a, int n) { return _mm512_srai_epi32(a, (unsigned)n); }

SIMD mask16 i32_gt(i32x16 a, i32x16 b) { return _mm512_cmpgt_epi32_mask(a, b); }
SIMD i32x16 i32_select(mask16 mask, i32x16 a, i32x16 b) {
    return _mm512_mask_blend_epi32(mask, b, a);
}

SIMD int32_t i32_reduce_add(i32x16 a) { return _mm512_reduce_add_epi32(a); }
SIMD int32_t i32_reduce_max(i32x16 a) { return _mm512_reduce_max_epi32(a); }

// --- between types -------------------------------------------------------------------------------

SIMD i32x16 f32_to_i32(f32x16 a) { return _mm512_cvtps_epi32(a); }
SIMD f32x16 i32_to_f32(i32x16 a) { return _mm512_cvtepi32_ps(a); }
SIMD i32x16 f32_as_i32(f32x16 a) { return _mm512_castps_si512(a); }
SIMD f32x16 i32_as_f32(i32x16 a) { return _mm512_castsi512_ps(a); }

#endif
