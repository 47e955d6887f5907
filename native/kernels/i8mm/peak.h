// How ARM's int8 matrix products multiply: two rows by two rows, 8 elements deep.
#ifndef ES_KERNELS_I8MM_PEAK_H
#define ES_KERNELS_I8MM_PEAK_H

#include "kernels/neon/dot.h"

enum {
    PEAK_CHAINS = 5,     // of four registers
    PEAK_PRODUCTS = 128, // of one peak_dot
};

SIMD int32x4_t quarter_peak(int32x4_t total, uint8x16_t w, uint8x16_t q) {
    return vmmlaq_s32(total, vreinterpretq_s8_u8(w), vreinterpretq_s8_u8(q));
}

SIMD i32x16 peak_dot(i32x16 total, line w, line q) {
    return (i32x16){quarter_peak(total.a, w.a, q.a), quarter_peak(total.b, w.b, q.b),
                    quarter_peak(total.c, w.c, q.c), quarter_peak(total.d, w.d, q.d)};
}

#endif
