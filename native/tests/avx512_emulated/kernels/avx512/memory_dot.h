// In the place of kernels/avx512/memory_dot.h, whose instructions are assembly: the same, emulated.
#ifndef ES_KERNELS_AVX512_MEMORY_DOT_H
#define ES_KERNELS_AVX512_MEMORY_DOT_H

#include <string.h>

#include "kernels/avx512/simd.h"

SIMD __m512i dot_quad(__m512i sum, __m512i w, const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(quad));
}

SIMD __m512i dot_pair(__m512i sum, __m512i w, const int16_t *q) {
    int32_t pair;
    memcpy(&pair, q, sizeof pair);
    return _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(pair));
}

#endif
