// AVX-512 for machines that lack it: what kernels/avx512 uses, as pairs of AVX2 registers or lane
// by lane, after the descriptions in Intel's manual. In front of the system's immintrin.h it lets
// tests compare the set's logic with the other sets; the instructions themselves need a processor.
#ifndef ES_TESTS_AVX512_EMULATED_H
#define ES_TESTS_AVX512_EMULATED_H

#include_next <immintrin.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 low, high;
} emulated_ps;

typedef struct {
    __m256i low, high;
} emulated_si;

#define __m512  emulated_ps
#define __m512i emulated_si
#define EMULATE static inline __attribute__((unused))

// Lanes as arrays, and back.
#define LANES(type, count, name, x)                                                                \
    type name[count];                                                                              \
    memcpy(name, &(x), sizeof name)
#define RETURN_LANES(result, name)                                                                 \
    result packed;                                                                                 \
    memcpy(&packed, name, sizeof packed);                                                          \
    return packed
#define EACH(i, count) for (int i = 0; i < (count); i++)

// --- pairs of AVX2 -------------------------------------------------------------------------------

#define PAIR1(name, type, half)                                                                    \
    EMULATE type emulated_##name(type a) { return (type){half(a.low), half(a.high)}; }
#define PAIR2(name, type, half)                                                                    \
    EMULATE type emulated_##name(type a, type b) {                                                 \
        return (type){half(a.low, b.low), half(a.high, b.high)};                                   \
    }
#define PAIR3(name, type, half)                                                                    \
    EMULATE type emulated_##name(type a, type b, type c) {                                         \
        return (type){half(a.low, b.low, c.low), half(a.high, b.high, c.high)};                    \
    }
#define SHIFT(name, half)                                                                          \
    EMULATE __m512i emulated_##name(__m512i a, unsigned n) {                                       \
        return (__m512i){half(a.low, (int)n), half(a.high, (int)n)};                               \
    }
#define SET1(name, result, type, half)                                                             \
    EMULATE result emulated_##name(type x) { return (result){half(x), half(x)}; }

PAIR2(add_ps, __m512, _mm256_add_ps)
PAIR2(sub_ps, __m512, _mm256_sub_ps)
PAIR2(mul_ps, __m512, _mm256_mul_ps)
PAIR2(div_ps, __m512, _mm256_div_ps)
PAIR2(max_ps, __m512, _mm256_max_ps)
PAIR2(min_ps, __m512, _mm256_min_ps)
PAIR2(xor_ps, __m512, _mm256_xor_ps)
PAIR1(sqrt_ps, __m512, _mm256_sqrt_ps)
PAIR3(fmadd_ps, __m512, _mm256_fmadd_ps)
PAIR3(fnmadd_ps, __m512, _mm256_fnmadd_ps)
PAIR2(add_epi32, __m512i, _mm256_add_epi32)
PAIR2(sub_epi32, __m512i, _mm256_sub_epi32)
PAIR2(mullo_epi32, __m512i, _mm256_mullo_epi32)
PAIR2(max_epi32, __m512i, _mm256_max_epi32)
PAIR2(and_si512, __m512i, _mm256_and_si256)
PAIR2(or_si512, __m512i, _mm256_or_si256)
PAIR2(xor_si512, __m512i, _mm256_xor_si256)
PAIR2(shuffle_epi8, __m512i, _mm256_shuffle_epi8)
SHIFT(slli_epi32, _mm256_slli_epi32)
SHIFT(srai_epi32, _mm256_srai_epi32)
SHIFT(slli_epi16, _mm256_slli_epi16)
SHIFT(srli_epi16, _mm256_srli_epi16)
SET1(set1_ps, __m512, float, _mm256_set1_ps)
SET1(set1_epi32, __m512i, int, _mm256_set1_epi32)
SET1(set1_epi8, __m512i, char, _mm256_set1_epi8)
SET1(broadcast_i32x4, __m512i, __m128i, _mm256_broadcastsi128_si256)

EMULATE __m512 emulated_setzero_ps(void) { return emulated_set1_ps(0.0f); }
EMULATE __m512i emulated_setzero_si512(void) { return emulated_set1_epi32(0); }

EMULATE __m512 emulated_abs_ps(__m512 a) {
    const __m256 sign = _mm256_set1_ps(-0.0f);
    return (__m512){_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}

EMULATE __m512i emulated_setr_epi32(int a, int b, int c, int d, int e, int f, int g, int h, int i,
                                    int j, int k, int l, int m, int n, int o, int p) {
    return (__m512i){_mm256_setr_epi32(a, b, c, d, e, f, g, h),
                     _mm256_setr_epi32(i, j, k, l, m, n, o, p)};
}

// --- memory --------------------------------------------------------------------------------------

EMULATE __m512 emulated_loadu_ps(const void *p) {
    __m512 a;
    memcpy(&a, p, sizeof a);
    return a;
}
EMULATE __m512i emulated_loadu_si512(const void *p) {
    __m512i a;
    memcpy(&a, p, sizeof a);
    return a;
}
EMULATE void emulated_storeu_ps(void *p, __m512 a) { memcpy(p, &a, sizeof a); }
EMULATE void emulated_storeu_si512(void *p, __m512i a) { memcpy(p, &a, sizeof a); }

EMULATE __m512 emulated_maskz_loadu_ps(__mmask16 mask, const float *p) {
    float lanes[16];
    EACH(i, 16) { lanes[i] = mask >> i & 1 ? p[i] : 0.0f; }
    RETURN_LANES(__m512, lanes);
}

EMULATE void emulated_mask_storeu_ps(float *p, __mmask16 mask, __m512 a) {
    LANES(float, 16, lanes, a);
    EACH(i, 16) {
        if (mask >> i & 1) {
            p[i] = lanes[i];
        }
    }
}

EMULATE __m256i emulated_maskz_loadu_epi16(__mmask16 mask, const uint16_t *p) {
    uint16_t lanes[16];
    EACH(i, 16) { lanes[i] = mask >> i & 1 ? p[i] : 0; }
    RETURN_LANES(__m256i, lanes);
}

EMULATE void emulated_mask_storeu_epi16(uint16_t *p, __mmask16 mask, __m256i a) {
    LANES(uint16_t, 16, lanes, a);
    EACH(i, 16) {
        if (mask >> i & 1) {
            p[i] = lanes[i];
        }
    }
}

// --- masks, order, reductions --------------------------------------------------------------------

EMULATE __mmask16 mask_of(__m256 low, __m256 high) {
    return (__mmask16)(_mm256_movemask_ps(low) | _mm256_movemask_ps(high) << 8);
}

// A macro: the comparison has to be a constant.
#define emulated_cmp_ps_mask(a, b, how)                                                            \
    mask_of(_mm256_cmp_ps((a).low, (b).low, how), _mm256_cmp_ps((a).high, (b).high, how))

EMULATE __mmask16 emulated_cmpgt_epi32_mask(__m512i a, __m512i b) {
    return mask_of(_mm256_castsi256_ps(_mm256_cmpgt_epi32(a.low, b.low)),
                   _mm256_castsi256_ps(_mm256_cmpgt_epi32(a.high, b.high)));
}

// Lanes of b where the mask is set, else of a.
EMULATE __m512i emulated_mask_blend_epi32(__mmask16 mask, __m512i a, __m512i b) {
    LANES(int32_t, 16, from, a);
    LANES(int32_t, 16, to, b);
    EACH(i, 16) { from[i] = mask >> i & 1 ? to[i] : from[i]; }
    RETURN_LANES(__m512i, from);
}

EMULATE __m512 emulated_mask_blend_ps(__mmask16 mask, __m512 a, __m512 b) {
    LANES(float, 16, from, a);
    LANES(float, 16, to, b);
    EACH(i, 16) { from[i] = mask >> i & 1 ? to[i] : from[i]; }
    RETURN_LANES(__m512, from);
}

// Indices 0 .. 15 are lanes of a, 16 .. 31 of b.
EMULATE __m512 emulated_permutex2var_ps(__m512 a, __m512i indices, __m512 b) {
    LANES(int32_t, 16, index, indices);
    float from[32], to[16];
    memcpy(from, &a, sizeof a);
    memcpy(from + 16, &b, sizeof b);
    EACH(i, 16) { to[i] = from[index[i] & 31]; }
    RETURN_LANES(__m512, to);
}

EMULATE __m256 emulated_castps512_ps256(__m512 a) { return a.low; }
EMULATE __m256 emulated_extractf32x8_ps(__m512 a, int half) { return half ? a.high : a.low; }

EMULATE int emulated_reduce_add_epi32(__m512i a) {
    LANES(uint32_t, 16, lanes, a);
    uint32_t sum = 0;
    EACH(i, 16) { sum += lanes[i]; }
    return (int)sum;
}

EMULATE int emulated_reduce_max_epi32(__m512i a) {
    LANES(int32_t, 16, lanes, a);
    int32_t largest = lanes[0];
    EACH(i, 16) { largest = lanes[i] > largest ? lanes[i] : largest; }
    return largest;
}

// --- between types -------------------------------------------------------------------------------

EMULATE __m512i emulated_cvtps_epi32(__m512 a) {
    return (__m512i){_mm256_cvtps_epi32(a.low), _mm256_cvtps_epi32(a.high)};
}
EMULATE __m512 emulated_cvtepi32_ps(__m512i a) {
    return (__m512){_mm256_cvtepi32_ps(a.low), _mm256_cvtepi32_ps(a.high)};
}
EMULATE __m512i emulated_castps_si512(__m512 a) { return emulated_loadu_si512(&a); }
EMULATE __m512 emulated_castsi512_ps(__m512i a) { return emulated_loadu_ps(&a); }

EMULATE __m512 emulated_cvtph_ps(__m256i a) {
    return (__m512){_mm256_cvtph_ps(_mm256_castsi256_si128(a)),
                    _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1))};
}

EMULATE __m256i emulated_cvtps_ph(__m512 a, int rounding) {
    (void)rounding; // to nearest, everywhere
    return _mm256_set_m128i(_mm256_cvtps_ph(a.high, _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(a.low, _MM_FROUND_TO_NEAREST_INT));
}

EMULATE __m512i emulated_cvtepu8_epi32(__m128i a) {
    return (__m512i){_mm256_cvtepu8_epi32(a), _mm256_cvtepu8_epi32(_mm_unpackhi_epi64(a, a))};
}
EMULATE __m512i emulated_cvtepi8_epi32(__m128i a) {
    return (__m512i){_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_unpackhi_epi64(a, a))};
}
EMULATE __m512i emulated_cvtepu16_epi32(__m256i a) {
    return (__m512i){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)),
                     _mm256_cvtepu16_epi32(_mm256_extracti128_si256(a, 1))};
}
EMULATE __m512i emulated_cvtepi8_epi16(__m256i a) {
    return (__m512i){_mm256_cvtepi8_epi16(_mm256_castsi256_si128(a)),
                     _mm256_cvtepi8_epi16(_mm256_extracti128_si256(a, 1))};
}

EMULATE __m128i emulated_cvtepi32_epi8(__m512i a) {
    LANES(int32_t, 16, lanes, a);
    int8_t bytes[16];
    EACH(i, 16) { bytes[i] = (int8_t)lanes[i]; }
    RETURN_LANES(__m128i, bytes);
}

// --- products ------------------------------------------------------------------------------------

// Sums of four unsigned bytes of a times signed bytes of b, added without saturation.
EMULATE __m512i emulated_dpbusd_epi32(__m512i sums, __m512i a, __m512i b) {
    LANES(int32_t, 16, sum, sums);
    LANES(uint8_t, 64, left, a);
    LANES(int8_t, 64, right, b);
    EACH(i, 64) { sum[i / 4] += left[i] * right[i]; }
    RETURN_LANES(__m512i, sum);
}

// Sums of two int16 of a times int16 of b, added without saturation.
EMULATE __m512i emulated_dpwssd_epi32(__m512i sums, __m512i a, __m512i b) {
    LANES(int32_t, 16, sum, sums);
    LANES(int16_t, 32, left, a);
    LANES(int16_t, 32, right, b);
    EACH(i, 32) { sum[i / 2] += left[i] * right[i]; }
    RETURN_LANES(__m512i, sum);
}

// --- names ---------------------------------------------------------------------------------------

// Some are macros.
#undef _mm256_mask_storeu_epi16
#undef _mm256_maskz_loadu_epi16
#undef _mm512_abs_ps
#undef _mm512_add_epi32
#undef _mm512_add_ps
#undef _mm512_and_si512
#undef _mm512_broadcast_i32x4
#undef _mm512_castps512_ps256
#undef _mm512_castps_si512
#undef _mm512_castsi512_ps
#undef _mm512_cmp_ps_mask
#undef _mm512_cmpgt_epi32_mask
#undef _mm512_cvtepi32_epi8
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtepi8_epi16
#undef _mm512_cvtepi8_epi32
#undef _mm512_cvtepu16_epi32
#undef _mm512_cvtepu8_epi32
#undef _mm512_cvtph_ps
#undef _mm512_cvtps_epi32
#undef _mm512_cvtps_ph
#undef _mm512_div_ps
#undef _mm512_dpbusd_epi32
#undef _mm512_dpwssd_epi32
#undef _mm512_extractf32x8_ps
#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#undef _mm512_loadu_ps
#undef _mm512_loadu_si512
#undef _mm512_mask_blend_epi32
#undef _mm512_mask_blend_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_max_epi32
#undef _mm512_max_ps
#undef _mm512_min_ps
#undef _mm512_mul_ps
#undef _mm512_mullo_epi32
#undef _mm512_or_si512
#undef _mm512_permutex2var_ps
#undef _mm512_reduce_add_epi32
#undef _mm512_reduce_max_epi32
#undef _mm512_set1_epi32
#undef _mm512_set1_epi8
#undef _mm512_set1_ps
#undef _mm512_setr_epi32
#undef _mm512_setzero_ps
#undef _mm512_setzero_si512
#undef _mm512_shuffle_epi8
#undef _mm512_slli_epi16
#undef _mm512_slli_epi32
#undef _mm512_sqrt_ps
#undef _mm512_srai_epi32
#undef _mm512_srli_epi16
#undef _mm512_storeu_ps
#undef _mm512_storeu_si512
#undef _mm512_sub_epi32
#undef _mm512_sub_ps
#undef _mm512_xor_ps
#undef _mm512_xor_si512

#define _mm256_mask_storeu_epi16 emulated_mask_storeu_epi16
#define _mm256_maskz_loadu_epi16 emulated_maskz_loadu_epi16
#define _mm512_abs_ps            emulated_abs_ps
#define _mm512_add_epi32         emulated_add_epi32
#define _mm512_add_ps            emulated_add_ps
#define _mm512_and_si512         emulated_and_si512
#define _mm512_broadcast_i32x4   emulated_broadcast_i32x4
#define _mm512_castps512_ps256   emulated_castps512_ps256
#define _mm512_castps_si512      emulated_castps_si512
#define _mm512_castsi512_ps      emulated_castsi512_ps
#define _mm512_cmp_ps_mask       emulated_cmp_ps_mask
#define _mm512_cmpgt_epi32_mask  emulated_cmpgt_epi32_mask
#define _mm512_cvtepi32_epi8     emulated_cvtepi32_epi8
#define _mm512_cvtepi32_ps       emulated_cvtepi32_ps
#define _mm512_cvtepi8_epi16     emulated_cvtepi8_epi16
#define _mm512_cvtepi8_epi32     emulated_cvtepi8_epi32
#define _mm512_cvtepu16_epi32    emulated_cvtepu16_epi32
#define _mm512_cvtepu8_epi32     emulated_cvtepu8_epi32
#define _mm512_cvtph_ps          emulated_cvtph_ps
#define _mm512_cvtps_epi32       emulated_cvtps_epi32
#define _mm512_cvtps_ph          emulated_cvtps_ph
#define _mm512_div_ps            emulated_div_ps
#define _mm512_dpbusd_epi32      emulated_dpbusd_epi32
#define _mm512_dpwssd_epi32      emulated_dpwssd_epi32
#define _mm512_extractf32x8_ps   emulated_extractf32x8_ps
#define _mm512_fmadd_ps          emulated_fmadd_ps
#define _mm512_fnmadd_ps         emulated_fnmadd_ps
#define _mm512_loadu_ps          emulated_loadu_ps
#define _mm512_loadu_si512       emulated_loadu_si512
#define _mm512_mask_blend_epi32  emulated_mask_blend_epi32
#define _mm512_mask_blend_ps     emulated_mask_blend_ps
#define _mm512_mask_storeu_ps    emulated_mask_storeu_ps
#define _mm512_maskz_loadu_ps    emulated_maskz_loadu_ps
#define _mm512_max_epi32         emulated_max_epi32
#define _mm512_max_ps            emulated_max_ps
#define _mm512_min_ps            emulated_min_ps
#define _mm512_mul_ps            emulated_mul_ps
#define _mm512_mullo_epi32       emulated_mullo_epi32
#define _mm512_or_si512          emulated_or_si512
#define _mm512_permutex2var_ps   emulated_permutex2var_ps
#define _mm512_reduce_add_epi32  emulated_reduce_add_epi32
#define _mm512_reduce_max_epi32  emulated_reduce_max_epi32
#define _mm512_set1_epi32        emulated_set1_epi32
#define _mm512_set1_epi8         emulated_set1_epi8
#define _mm512_set1_ps           emulated_set1_ps
#define _mm512_setr_epi32        emulated_setr_epi32
#define _mm512_setzero_ps        emulated_setzero_ps
#define _mm512_setzero_si512     emulated_setzero_si512
#define _mm512_shuffle_epi8      emulated_shuffle_epi8
#define _mm512_slli_epi16        emulated_slli_epi16
#define _mm512_slli_epi32        emulated_slli_epi32
#define _mm512_sqrt_ps           emulated_sqrt_ps
#define _mm512_srai_epi32        emulated_srai_epi32
#define _mm512_srli_epi16        emulated_srli_epi16
#define _mm512_storeu_ps         emulated_storeu_ps
#define _mm512_storeu_si512      emulated_storeu_si512
#define _mm512_sub_epi32         emulated_sub_epi32
#define _mm512_sub_ps            emulated_sub_ps
#define _mm512_xor_ps            emulated_xor_ps
#define _mm512_xor_si512         emulated_xor_si512

#undef LANES
#undef RETURN_LANES
#undef EACH
#undef PAIR1
#undef PAIR2
#undef PAIR3
#undef SHIFT
#undef SET1

#endif
