// The simd layer for AVX2, FMA and F16C: 16 lanes are two registers. See ref/simd.h for what each
// operation means.
#ifndef ES_KERNELS_AVX2_SIMD_H
#define ES_KERNELS_AVX2_SIMD_H

#include <immintrin.h>
#include <stdint.h>

#define SIMD      static inline __attribute__((always_inline))
#define SIMD_LONG SIMD

enum { SIMD_REGISTERS = 8 };

typedef struct {
    __m256 low, high;
} f32x16;

typedef struct {
    __m256i low, high;
} i32x16;

typedef struct {
    __m256i low, high; // all bits of a lane, or none
} mask16;

// --- masks ---------------------------------------------------------------------------------------

SIMD mask16 mask_first(int64_t n) {
    const __m256i count = _mm256_set1_epi32((int32_t)(n < 0 ? 0 : n > 16 ? 16 : n));
    return (mask16){_mm256_cmpgt_epi32(count, _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)),
                    _mm256_cmpgt_epi32(count, _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15))};
}

SIMD mask16 mask_and(mask16 a, mask16 b) {
    return (mask16){_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}

SIMD mask16 mask_or(mask16 a, mask16 b) {
    return (mask16){_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

SIMD mask16 mask_except(mask16 a, mask16 b) {
    return (mask16){_mm256_andnot_si256(b.low, a.low), _mm256_andnot_si256(b.high, a.high)};
}

SIMD int mask_any(mask16 a) {
    const __m256i any = _mm256_or_si256(a.low, a.high);
    return !_mm256_testz_si256(any, any);
}

// --- float32 -------------------------------------------------------------------------------------

SIMD f32x16 f32_splat(float x) { return (f32x16){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

SIMD f32x16 f32_zero(void) { return (f32x16){_mm256_setzero_ps(), _mm256_setzero_ps()}; }

SIMD f32x16 f32_load(const float *p) {
    return (f32x16){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}

SIMD f32x16 f32_load_part(const float *p, int64_t n) {
    const mask16 mask = mask_first(n);
    return (f32x16){_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
}

SIMD void f32_store(float *p, f32x16 a) {
    _mm256_storeu_ps(p, a.low);
    _mm256_storeu_ps(p + 8, a.high);
}

SIMD void f32_store_part(float *p, f32x16 a, int64_t n) {
    const mask16 mask = mask_first(n);
    _mm256_maskstore_ps(p, mask.low, a.low);
    _mm256_maskstore_ps(p + 8, mask.high, a.high);
}

// A shuffle works within 128-bit halves: the permutation puts its quarters in order.
SIMD __m256 in_order(__m256 quarters) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(quarters), 0xd8));
}

SIMD void f32_load_pairs(const float *p, f32x16 *even, f32x16 *odd) {
    const f32x16 a = f32_load(p);
    const f32x16 b = f32_load(p + 16);
    *even = (f32x16){in_order(_mm256_shuffle_ps(a.low, a.high, 0x88)),
                     in_order(_mm256_shuffle_ps(b.low, b.high, 0x88))};
    *odd = (f32x16){in_order(_mm256_shuffle_ps(a.low, a.high, 0xdd)),
                    in_order(_mm256_shuffle_ps(b.low, b.high, 0xdd))};
}

// Pairs 0, 1, 4, 5 and 2, 3, 6, 7 of 8.
SIMD void store_8_pairs(float *p, __m256 even, __m256 odd) {
    const __m256 low = _mm256_unpacklo_ps(even, odd);
    const __m256 high = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(low, high, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
}

SIMD void f32_store_pairs(float *p, f32x16 even, f32x16 odd) {
    store_8_pairs(p, even.low, odd.low);
    store_8_pairs(p + 16, even.high, odd.high);
}

SIMD f32x16 f32_add(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}

SIMD f32x16 f32_sub(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}

SIMD f32x16 f32_mul(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}

SIMD f32x16 f32_div(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}

SIMD f32x16 f32_sqrt(f32x16 a) { return (f32x16){_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }

SIMD f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

SIMD f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) {
    return (f32x16){_mm256_fnmadd_ps(a.low, b.low, c.low),
                    _mm256_fnmadd_ps(a.high, b.high, c.high)};
}

// These give their second operand unless the first is greater, or less: a > b ? a : b.
SIMD f32x16 f32_max(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

SIMD f32x16 f32_min(f32x16 a, f32x16 b) {
    return (f32x16){_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

SIMD f32x16 f32_abs(f32x16 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (f32x16){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

SIMD f32x16 f32_neg(f32x16 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (f32x16){_mm256_xor_ps(sign, a.low), _mm256_xor_ps(sign, a.high)};
}

SIMD mask16 f32_lt(f32x16 a, f32x16 b) {
    return (mask16){_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
                    _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}

SIMD mask16 f32_gt(f32x16 a, f32x16 b) { return f32_lt(b, a); }

SIMD mask16 f32_eq(f32x16 a, f32x16 b) {
    return (mask16){_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_EQ_OQ)),
                    _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_EQ_OQ))};
}

SIMD f32x16 f32_select(mask16 mask, f32x16 a, f32x16 b) {
    return (f32x16){_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(mask.low)),
                    _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(mask.high))};
}

SIMD float f32_reduce_add(f32x16 a) {
    const __m256 eight = _mm256_add_ps(a.low, a.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

SIMD float f32_reduce_max(f32x16 a) {
    const __m256 eight = _mm256_max_ps(a.low, a.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// --- halfs ---------------------------------------------------------------------------------------

SIMD f32x16 f16_load(const uint16_t *p) {
    return (f32x16){_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)),
                    _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))};
}

// No masked move has 16-bit elements: by way of memory.
SIMD f32x16 f16_load_part(const uint16_t *p, int64_t n) {
    uint16_t all[16] = {0};
    for (int64_t i = 0; i < n; i++) {
        all[i] = p[i];
    }
    return f16_load(all);
}

SIMD void f16_store(uint16_t *p, f32x16 a) {
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(p + 8), _mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT));
}

SIMD void f16_store_part(uint16_t *p, f32x16 a, int64_t n) {
    uint16_t all[16];
    f16_store(all, a);
    for (int64_t i = 0; i < n; i++) {
        p[i] = all[i];
    }
}

// --- small integers ------------------------------------------------------------------------------

SIMD f32x16 i8_widen(__m128i bytes) {
    return (f32x16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

SIMD f32x16 i8_load(const uint8_t *p) {
    const __m128i low = _mm_loadl_epi64((const __m128i *)p);
    const __m128i high = _mm_loadl_epi64((const __m128i *)(p + 8));
    return (f32x16){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(low)),
                    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high))};
}

// Of nibbles, which are integers plus 8.
SIMD f32x16 i4_widen(__m128i bytes) {
    return i8_widen(_mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8)));
}

SIMD f32x16 i4_load_low(const uint8_t *p) { return i4_widen(_mm_loadu_si128((const __m128i *)p)); }

SIMD f32x16 i4_load_high(const uint8_t *p) {
    return i4_widen(_mm_srli_epi16(_mm_loadu_si128((const __m128i *)p), 4));
}

// --- int32 ---------------------------------------------------------------------------------------

SIMD i32x16 i32_splat(int32_t x) { return (i32x16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

SIMD i32x16 i32_iota(void) {
    return (i32x16){_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                    _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}

SIMD i32x16 i32_load(const int32_t *p) {
    return (i32x16){_mm256_loadu_si256((const __m256i *)p),
                    _mm256_loadu_si256((const __m256i *)(p + 8))};
}

SIMD void i32_store(int32_t *p, i32x16 a) {
    _mm256_storeu_si256((__m256i *)p, a.low);
    _mm256_storeu_si256((__m256i *)(p + 8), a.high);
}

SIMD void i32_store_i8(int8_t *p, i32x16 a) {
    // Packing works within 128-bit halves: after it, quarters 1 and 2 change places.
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.low, a.high), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((__m128i *)p, bytes);
}

SIMD i32x16 i32_add(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}

SIMD i32x16 i32_sub(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_sub_epi32(a.low, b.low), _mm256_sub_epi32(a.high, b.high)};
}

SIMD i32x16 i32_max(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_max_epi32(a.low, b.low), _mm256_max_epi32(a.high, b.high)};
}

SIMD i32x16 i32_and(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}

SIMD i32x16 i32_or(i32x16 a, i32x16 b) {
    return (i32x16){_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}

SIMD i32x16 i32_shift_left(i32x16 a, int n) {
    return (i32x16){_mm256_slli_epi32(a.low, n), _mm256_slli_epi32(a.high, n)};
}

SIMD i32x16 i32_shift_right(i32x16 a, int n) {
    return (i32x16){_mm256_srai_epi32(a.low, n), _mm256_srai_epi32(a.high, n)};
}

SIMD mask16 i32_gt(i32x16 a, i32x16 b) {
    return (mask16){_mm256_cmpgt_epi32(a.low, b.low), _mm256_cmpgt_epi32(a.high, b.high)};
}

SIMD i32x16 i32_select(mask16 mask, i32x16 a, i32x16 b) {
    return (i32x16){_mm256_blendv_epi8(b.low, a.low, mask.low),
                    _mm256_blendv_epi8(b.high, a.high, mask.high)};
}

SIMD int32_t i32_reduce_add(i32x16 a) {
    const __m256i eight = _mm256_add_epi32(a.low, a.high);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

SIMD int32_t i32_reduce_max(i32x16 a) {
    const __m256i eight = _mm256_max_epi32(a.low, a.high);
    __m128i max = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    max = _mm_max_epi32(max, _mm_shuffle_epi32(max, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(max, _mm_shuffle_epi32(max, 0xb1)));
}

// --- between types -------------------------------------------------------------------------------

SIMD i32x16 f32_to_i32(f32x16 a) {
    return (i32x16){_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}

SIMD f32x16 i32_to_f32(i32x16 a) {
    return (f32x16){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}

SIMD i32x16 f32_as_i32(f32x16 a) {
    return (i32x16){_mm256_castps_si256(a.low), _mm256_castps_si256(a.high)};
}

SIMD f32x16 i32_as_f32(i32x16 a) {
    return (f32x16){_mm256_castsi256_ps(a.low), _mm256_castsi256_ps(a.high)};
}

#endif
