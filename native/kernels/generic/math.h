// Elementary functions over 16 lanes, the same bits in every set: own polynomials, every rounding
// written out. Included after a set's simd.h. Errors are measured in native/tests/kernels_test.c.
#ifndef ES_KERNELS_GENERIC_MATH_H
#define ES_KERNELS_GENERIC_MATH_H

#include "kernels/generic/unroll.h"

enum { EXP_MOST = 2 }; // exponentials at a time

// 2^n for n in [-126, 127].
SIMD f32x16 power_of_two(i32x16 n) {
    return i32_as_f32(i32_shift_left(i32_add(n, i32_splat(127)), 23));
}

// exp(r) of r = x - whole * ln(2), |r| <= ln(2) / 2. Of `n` at a time, step by step: one is a chain
// of operations that wait for each other.
SIMD_LONG void exp_of_fractions(const int n, const f32x16 *x, const f32x16 *whole, f32x16 *out) {
    static const float factors[] = {0x1.1239e2p-7f, 0x1.5558f2p-5f, 0x1.555492p-3f,
                                    0x1.fffffcp-2f, 1.0f,           1.0f};
    f32x16 r[EXP_MOST];
    UNROLL for (int i = 0; i < n; i++) { // ln(2), in two parts; exact
        r[i] = f32_fnma(whole[i], f32_splat(0x1.62e43p-1f), x[i]);
    }
    UNROLL for (int i = 0; i < n; i++) {
        r[i] = f32_fnma(whole[i], f32_splat(-0x1.05c61p-29f), r[i]);
        out[i] = f32_splat(0x1.6a242cp-10f);
    }
    UNROLL for (int k = 0; k < 6; k++) {
        UNROLL for (int i = 0; i < n; i++) {
            out[i] = f32_fma(out[i], r[i], f32_splat(factors[k]));
        }
    }
}

// exp(x) = 2^n exp(r). From 2^128 on it is infinity; subnormals are rounded once;
// NaN stays NaN. At most 1 ulp from the true value.
SIMD_LONG f32x16 f32_exp(f32x16 x) {
    // Beyond these the answer is infinity or zero; NaN becomes a number until the end.
    const f32x16 t = f32_min(f32_max(x, f32_splat(-104.0f)), f32_splat(89.0f));
    const i32x16 n = f32_to_i32(f32_mul(t, f32_splat(0x1.715476p+0f)));
    const f32x16 whole = i32_to_f32(n);
    f32x16 p;
    exp_of_fractions(1, &t, &whole, &p);
    // Twice, because 2^n alone may be no normal number. The first product is exact.
    const i32x16 half = i32_shift_right(n, 1);
    p = f32_mul(f32_mul(p, power_of_two(half)), power_of_two(i32_sub(n, half)));
    return f32_select(f32_eq(x, x), p, x);
}

// Near zero an odd polynomial, further out 1 - 2 / (exp(2|x|) + 1). At most 2 ulp.
SIMD_LONG f32x16 f32_tanh(f32x16 x) {
    const f32x16 size = f32_abs(x);
    const f32x16 e = f32_exp(f32_add(size, size));
    const f32x16 one = f32_splat(1.0f);
    const f32x16 far = f32_sub(one, f32_div(f32_splat(2.0f), f32_add(e, one)));
    const f32x16 z = f32_mul(x, x);
    f32x16 p = f32_splat(-0x1.75e1a4p-8f);
    p = f32_fma(p, z, f32_splat(0x1.522692p-6f));
    p = f32_fma(p, z, f32_splat(-0x1.b83c58p-5f));
    p = f32_fma(p, z, f32_splat(0x1.110726p-3f));
    p = f32_fma(p, z, f32_splat(-0x1.555532p-2f));
    const f32x16 near = f32_fma(f32_mul(p, z), size, size);
    const f32x16 out = f32_select(f32_lt(size, f32_splat(0.625f)), near, far);
    const i32x16 sign = i32_and(f32_as_i32(x), i32_splat(INT32_MIN));
    return i32_as_f32(i32_or(f32_as_i32(out), sign));
}

// x / (1 + exp(-v)), by exp of -|v|, which cannot overflow.
SIMD_LONG f32x16 times_sigmoid(f32x16 x, f32x16 v) {
    const f32x16 one = f32_splat(1.0f);
    const f32x16 e = f32_exp(f32_neg(f32_abs(v)));
    const f32x16 above = f32_select(f32_lt(v, f32_zero()), e, one);
    return f32_div(f32_mul(x, above), f32_add(one, e));
}

SIMD f32x16 f32_silu(f32x16 x) { return times_sigmoid(x, x); }

// x / 2 * (1 + tanh(u)) with u = sqrt(2 / pi) * (x + 0.044715 x^3). That factor is the sigmoid of
// 2u, which does not cancel where tanh is near -1.
SIMD f32x16 f32_gelu_tanh(f32x16 x) {
    const f32x16 slope =
        f32_fma(f32_mul(x, x), f32_splat(0x1.2444f2p-4f), f32_splat(0x1.988454p+0f));
    return times_sigmoid(x, f32_mul(x, slope));
}

#endif
