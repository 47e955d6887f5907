// How AVX2 multiplies int8 without bounds on the values' number: maddubs, then madd to 32 bits.
// Kernels beat it where weights are so small that several products fit into 16 bits.
#ifndef ES_KERNELS_AVX2_PEAK_H
#define ES_KERNELS_AVX2_PEAK_H

#include "kernels/avx2/dot.h"

enum {
    PEAK_CHAINS = 5,    // of two registers
    PEAK_PRODUCTS = 64, // of one peak_dot
};

SIMD i32x16 peak_dot(i32x16 total, line w, line q) {
    const __m256i one = _mm256_set1_epi16(1);
    const __m256i low = _mm256_madd_epi16(_mm256_maddubs_epi16(w.low, q.low), one);
    const __m256i high = _mm256_madd_epi16(_mm256_maddubs_epi16(w.high, q.high), one);
    total.low = _mm256_add_epi32(total.low, low);
    total.high = _mm256_add_epi32(total.high, high);
    // Volatile keeps the chains in order; all products first would not fit into registers.
    __asm__ volatile("" : "+x"(total.low), "+x"(total.high));
    return total;
}

#endif
