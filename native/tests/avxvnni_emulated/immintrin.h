// AVX-VNNI for machines that lack it: the two instructions lane by lane, after the descriptions in
// Intel's manual. In front of the system's immintrin.h it lets tests compare the set's logic with
// the other sets; the instructions themselves need a processor.
#ifndef ES_TESTS_AVXVNNI_EMULATED_H
#define ES_TESTS_AVXVNNI_EMULATED_H

#include_next <immintrin.h>
#include <stdint.h>
#include <string.h>

#define EMULATE static inline __attribute__((unused))

// Sums of four unsigned bytes of a times signed bytes of b, added without saturation.
EMULATE __m256i emulated_dpbusd_avx_epi32(__m256i sums, __m256i a, __m256i b) {
    int32_t sum[8];
    uint8_t left[32];
    int8_t right[32];
    memcpy(sum, &sums, sizeof sum);
    memcpy(left, &a, sizeof left);
    memcpy(right, &b, sizeof right);
    for (int i = 0; i < 32; i++) {
        sum[i / 4] += left[i] * right[i];
    }
    memcpy(&sums, sum, sizeof sum);
    return sums;
}

// Sums of two int16 of a times int16 of b, added without saturation.
EMULATE __m256i emulated_dpwssd_avx_epi32(__m256i sums, __m256i a, __m256i b) {
    int32_t sum[8];
    int16_t left[16], right[16];
    memcpy(sum, &sums, sizeof sum);
    memcpy(left, &a, sizeof left);
    memcpy(right, &b, sizeof right);
    for (int i = 0; i < 16; i++) {
        sum[i / 2] += left[i] * right[i];
    }
    memcpy(&sums, sum, sizeof sum);
    return sums;
}

#undef _mm256_dpbusd_avx_epi32
#undef _mm256_dpwssd_avx_epi32

#define _mm256_dpbusd_avx_epi32 emulated_dpbusd_avx_epi32
#define _mm256_dpwssd_avx_epi32 emulated_dpwssd_avx_epi32

#endif
