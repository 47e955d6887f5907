// How AVX-VNNI multiplies int8: two dpbusd a line.
#ifndef ES_KERNELS_AVXVNNI_PEAK_H
#define ES_KERNELS_AVXVNNI_PEAK_H

#include "kernels/avxvnni/dot.h"

enum {
    PEAK_CHAINS = 6,    // of two registers: two instructions a cycle of five cycles each
    PEAK_PRODUCTS = 64, // of one peak_dot
};

SIMD i32x16 peak_dot(i32x16 total, line w, line q) {
    return (i32x16){_mm256_dpbusd_avx_epi32(total.low, w.low, q.low),
                    _mm256_dpbusd_avx_epi32(total.high, w.high, q.high)};
}

#endif
