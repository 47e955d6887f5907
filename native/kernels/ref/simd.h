// The simd layer in plain C: 16 lanes as arrays, one operation a loop. It is the oracle that the
// other sets are compared with, and what a processor without any of them runs.
//
// Names and meaning are the same in every set:
//  - f32x16, i32x16 and mask16 are 16 lanes; *_part touches the first n of them (0 <= n <= 16),
//    and loads zeros for the rest.
//  - fma is a * b + c and fnma is c - a * b, rounded once. max(a, b) is a > b ? a : b,
//    min(a, b) is a < b ? a : b.
//  - f32_to_i32 rounds to nearest even, of values within +-2^22.
//  - Halfs widen exactly and are rounded to nearest even.
//  - reduce_* is the contract's tree: lane i with lane i + 8, then 4, 2, 1.
#ifndef ES_KERNELS_REF_SIMD_H
#define ES_KERNELS_REF_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define SIMD      static inline
#define SIMD_LONG static __attribute__((noinline, unused)) // longer ones: here, one copy of each
#define EACH_LANE for (int i = 0; i < 16; i++)

// How many f32x16 the registers hold; tiles are sized by it.
enum { SIMD_REGISTERS = 4 };

typedef struct {
    float lane[16];
} f32x16;

typedef struct {
    int32_t lane[16];
} i32x16;

typedef struct {
    int32_t lane[16]; // 0 or 1
} mask16;

// --- scalars -------------------------------------------------------------------------------------

SIMD uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

SIMD float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#if defined(__FP_FAST_FMAF)
SIMD float scalar_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
// Correctly rounded without an fma instruction: a * b is exact in double; the sum with c is
// rounded to odd there, and from 53 bits that way rounding to 24 is right (Boldo and Melquiond,
// Emulation of FMA, 2008). Not every system's fmaf is.
SIMD float scalar_fma(float a, float b, float c) {
    const double product = (double)a * (double)b;
    const double addend = (double)c;
    const double sum = product + addend;
    const double high = sum - product;
    const double error = (product - (sum - high)) + (addend - high);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    // Rounded to odd: where an inexact sum ended in 0, the neighbour on the error's side. `error`
    // of a sum that is no number compares false both ways.
    const uint64_t even = (bits & 1) ^ 1;
    const uint64_t away = (uint64_t)((error > 0) & (sum > 0)) | (uint64_t)((error < 0) & (sum < 0));
    const uint64_t back = (uint64_t)((error > 0) & (sum < 0)) | (uint64_t)((error < 0) & (sum > 0));
    bits += even & away;
    bits -= even & back;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}
#endif

// Subnormal halfs are integers times 2^-24; the rest only needs its exponent moved.
SIMD float scalar_widen(uint16_t half) {
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t exponent = half >> 10 & 0x1fu;
    const uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0) {
        return float_of_bits(sign | bits_of_float((float)mantissa * 0x1p-24f));
    }
    if (exponent == 0x1f) { // a NaN comes out quiet, as from the instruction
        const uint32_t quiet = mantissa != 0 ? 0x400000u : 0;
        return float_of_bits(sign | 0x7f800000u | mantissa << 13 | quiet);
    }
    return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

SIMD uint16_t scalar_narrow(float x) {
    const uint32_t bits = bits_of_float(x);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    }
    if (magnitude >= 0x477ff000u) { // rounds to 65536 or more
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { // a subnormal half: adding 0.5 rounds at 2^-24
        const uint32_t sum = bits_of_float(float_of_bits(magnitude) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

// --- float32 -------------------------------------------------------------------------------------

SIMD f32x16 f32_splat(float x) {
    f32x16 out;
    EACH_LANE { out.lane[i] = x; }
    return out;
}

SIMD f32x16 f32_zero(void) { return f32_splat(0.0f); }

SIMD f32x16 f32_load(const float *p) {
    f32x16 out;
    memcpy(out.lane, p, sizeof out.lane);
    return out;
}

SIMD f32x16 f32_load_part(const float *p, int64_t n) {
    f32x16 out;
    EACH_LANE { out.lane[i] = i < n ? p[i] : 0.0f; }
    return out;
}

SIMD void f32_store(float *p, f32x16 a) { memcpy(p, a.lane, sizeof a.lane); }

SIMD void f32_store_part(float *p, f32x16 a, int64_t n) {
    EACH_LANE {
        if (i < n) {
            p[i] = a.lane[i];
        }
    }
}

// 32 floats from p as 16 pairs: (p[0], p[1]), (p[2], p[3]), ...
SIMD void f32_load_pairs(const float *p, f32x16 *even, f32x16 *odd) {
    EACH_LANE {
        even->lane[i] = p[2 * i];
        odd->lane[i] = p[2 * i + 1];
    }
}

SIMD void f32_store_pairs(float *p, f32x16 even, f32x16 odd) {
    EACH_LANE {
        p[2 * i] = even.lane[i];
        p[2 * i + 1] = odd.lane[i];
    }
}

SIMD f32x16 f32_add(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] += b.lane[i]; }
    return a;
}

SIMD f32x16 f32_sub(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] -= b.lane[i]; }
    return a;
}

SIMD f32x16 f32_mul(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] *= b.lane[i]; }
    return a;
}

SIMD f32x16 f32_div(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] /= b.lane[i]; }
    return a;
}

SIMD f32x16 f32_sqrt(f32x16 a) {
    EACH_LANE { a.lane[i] = sqrtf(a.lane[i]); }
    return a;
}

SIMD_LONG f32x16 f32_fma(f32x16 a, f32x16 b, f32x16 c) {
    EACH_LANE { c.lane[i] = scalar_fma(a.lane[i], b.lane[i], c.lane[i]); }
    return c;
}

SIMD_LONG f32x16 f32_fnma(f32x16 a, f32x16 b, f32x16 c) {
    EACH_LANE { c.lane[i] = scalar_fma(-a.lane[i], b.lane[i], c.lane[i]); }
    return c;
}

SIMD f32x16 f32_max(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; }
    return a;
}

SIMD f32x16 f32_min(f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] = a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; }
    return a;
}

SIMD f32x16 f32_abs(f32x16 a) {
    EACH_LANE { a.lane[i] = float_of_bits(bits_of_float(a.lane[i]) & 0x7fffffffu); }
    return a;
}

SIMD f32x16 f32_neg(f32x16 a) {
    EACH_LANE { a.lane[i] = -a.lane[i]; }
    return a;
}

SIMD mask16 f32_lt(f32x16 a, f32x16 b) {
    mask16 out;
    EACH_LANE { out.lane[i] = a.lane[i] < b.lane[i]; }
    return out;
}

SIMD mask16 f32_gt(f32x16 a, f32x16 b) { return f32_lt(b, a); }

SIMD mask16 f32_eq(f32x16 a, f32x16 b) {
    mask16 out;
    EACH_LANE { out.lane[i] = a.lane[i] == b.lane[i]; }
    return out;
}

// mask ? a : b
SIMD f32x16 f32_select(mask16 mask, f32x16 a, f32x16 b) {
    EACH_LANE { a.lane[i] = mask.lane[i] ? a.lane[i] : b.lane[i]; }
    return a;
}

SIMD float f32_reduce_add(f32x16 a) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            a.lane[i] += a.lane[i + half];
        }
    }
    return a.lane[0];
}

SIMD float f32_reduce_max(f32x16 a) {
    for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            a.lane[i] = a.lane[i] > a.lane[i + half] ? a.lane[i] : a.lane[i + half];
        }
    }
    return a.lane[0];
}

// --- halfs ---------------------------------------------------------------------------------------

SIMD_LONG f32x16 f16_load(const uint16_t *p) {
    f32x16 out;
    EACH_LANE { out.lane[i] = scalar_widen(p[i]); }
    return out;
}

SIMD f32x16 f16_load_part(const uint16_t *p, int64_t n) {
    f32x16 out;
    EACH_LANE { out.lane[i] = i < n ? scalar_widen(p[i]) : 0.0f; }
    return out;
}

SIMD_LONG void f16_store(uint16_t *p, f32x16 a) {
    EACH_LANE { p[i] = scalar_narrow(a.lane[i]); }
}

SIMD void f16_store_part(uint16_t *p, f32x16 a, int64_t n) {
    EACH_LANE {
        if (i < n) {
            p[i] = scalar_narrow(a.lane[i]);
        }
    }
}

// --- small integers ------------------------------------------------------------------------------

SIMD f32x16 i8_load(const uint8_t *p) {
    f32x16 out;
    EACH_LANE { out.lane[i] = (float)(int8_t)p[i]; }
    return out;
}

// Two a byte, each of them plus 8: those in the low nibbles, or those in the high ones.
SIMD f32x16 i4_load_low(const uint8_t *p) {
    f32x16 out;
    EACH_LANE { out.lane[i] = (float)((p[i] & 15) - 8); }
    return out;
}

SIMD f32x16 i4_load_high(const uint8_t *p) {
    f32x16 out;
    EACH_LANE { out.lane[i] = (float)((p[i] >> 4) - 8); }
    return out;
}

// --- int32 ---------------------------------------------------------------------------------------

SIMD i32x16 i32_splat(int32_t x) {
    i32x16 out;
    EACH_LANE { out.lane[i] = x; }
    return out;
}

// 0, 1, ... 15
SIMD i32x16 i32_iota(void) {
    i32x16 out;
    EACH_LANE { out.lane[i] = i; }
    return out;
}

SIMD i32x16 i32_load(const int32_t *p) {
    i32x16 out;
    memcpy(out.lane, p, sizeof out.lane);
    return out;
}

SIMD void i32_store(int32_t *p, i32x16 a) { memcpy(p, a.lane, sizeof a.lane); }

// Of values that fit into int8.
SIMD void i32_store_i8(int8_t *p, i32x16 a) {
    EACH_LANE { p[i] = (int8_t)a.lane[i]; }
}

// Sums wrap, as the instructions do.
SIMD i32x16 i32_add(i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] = (int32_t)((uint32_t)a.lane[i] + (uint32_t)b.lane[i]); }
    return a;
}

SIMD i32x16 i32_sub(i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] = (int32_t)((uint32_t)a.lane[i] - (uint32_t)b.lane[i]); }
    return a;
}

SIMD i32x16 i32_max(i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; }
    return a;
}

SIMD i32x16 i32_and(i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] &= b.lane[i]; }
    return a;
}

SIMD i32x16 i32_or(i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] |= b.lane[i]; }
    return a;
}

SIMD i32x16 i32_shift_left(i32x16 a, int n) {
    EACH_LANE { a.lane[i] = (int32_t)((uint32_t)a.lane[i] << n); }
    return a;
}

// Copies of the sign come in from the left.
SIMD i32x16 i32_shift_right(i32x16 a, int n) {
    EACH_LANE { a.lane[i] >>= n; }
    return a;
}

SIMD mask16 i32_gt(i32x16 a, i32x16 b) {
    mask16 out;
    EACH_LANE { out.lane[i] = a.lane[i] > b.lane[i]; }
    return out;
}

SIMD i32x16 i32_select(mask16 mask, i32x16 a, i32x16 b) {
    EACH_LANE { a.lane[i] = mask.lane[i] ? a.lane[i] : b.lane[i]; }
    return a;
}

SIMD int32_t i32_reduce_add(i32x16 a) {
    uint32_t sum = 0;
    EACH_LANE { sum += (uint32_t)a.lane[i]; }
    return (int32_t)sum;
}

SIMD int32_t i32_reduce_max(i32x16 a) {
    int32_t largest = a.lane[0];
    EACH_LANE { largest = a.lane[i] > largest ? a.lane[i] : largest; }
    return largest;
}

// --- between types, and masks --------------------------------------------------------------------

// Adding 1.5 * 2^23 leaves the rounded integer in the low bits.
SIMD i32x16 f32_to_i32(f32x16 a) {
    i32x16 out;
    EACH_LANE { out.lane[i] = (int32_t)(bits_of_float(a.lane[i] + 0x1.8p23f) - 0x4b400000u); }
    return out;
}

SIMD f32x16 i32_to_f32(i32x16 a) {
    f32x16 out;
    EACH_LANE { out.lane[i] = (float)a.lane[i]; }
    return out;
}

SIMD i32x16 f32_as_i32(f32x16 a) {
    i32x16 out;
    memcpy(out.lane, a.lane, sizeof out.lane);
    return out;
}

SIMD f32x16 i32_as_f32(i32x16 a) {
    f32x16 out;
    memcpy(out.lane, a.lane, sizeof out.lane);
    return out;
}

// Lanes 0 .. n - 1, for any n.
SIMD mask16 mask_first(int64_t n) {
    mask16 out;
    EACH_LANE { out.lane[i] = i < n; }
    return out;
}

SIMD mask16 mask_and(mask16 a, mask16 b) {
    EACH_LANE { a.lane[i] &= b.lane[i]; }
    return a;
}

SIMD mask16 mask_or(mask16 a, mask16 b) {
    EACH_LANE { a.lane[i] |= b.lane[i]; }
    return a;
}

// a and not b
SIMD mask16 mask_except(mask16 a, mask16 b) {
    EACH_LANE { a.lane[i] &= b.lane[i] ^ 1; }
    return a;
}

SIMD int mask_any(mask16 a) {
    int32_t any = 0;
    EACH_LANE { any |= a.lane[i]; }
    return any != 0;
}

#undef EACH_LANE

#endif
