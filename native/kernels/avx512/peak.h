// How AVX-512 VNNI multiplies int8: one dpbusd a line.
#ifndef ES_KERNELS_AVX512_PEAK_H
#define ES_KERNELS_AVX512_PEAK_H

#include "kernels/avx512/dot.h"

enum {
    PEAK_CHAINS = 12,   // two instructions a cycle of five cycles each, and some
    PEAK_PRODUCTS = 64, // of one peak_dot
};

SIMD i32x16 peak_dot(i32x16 total, line w, line q) { return _mm512_dpbusd_epi32(total, w, q); }

#endif
