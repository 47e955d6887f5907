// Everything that works on one row at a time: quantising activations, norms, rotations, gates,
// and reductions over logits. Included after a set's simd.h.
// What each function computes, and in which order, is the contract in kernels/kernels.h.
#ifndef ES_KERNELS_GENERIC_ROWS_H
#define ES_KERNELS_GENERIC_ROWS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/generic/math.h"

// The part of a row of n elements that starts at i: whole, or cut at the row's end.
SIMD_LONG f32x16 load_at(const float *x, int64_t i, int64_t n) {
    return n - i >= 16 ? f32_load(x + i) : f32_load_part(x + i, n - i);
}

SIMD_LONG void store_at(float *x, int64_t i, int64_t n, f32x16 a) {
    if (n - i >= 16) {
        f32_store(x + i, a);
    } else {
        f32_store_part(x + i, a, n - i);
    }
}

// --- activations ---------------------------------------------------------------------------------

// Their largest magnitude, by the bits, which order magnitudes as integers do and keep NaN on top.
SIMD float largest_magnitude(const f32x16 *x, int n) {
    i32x16 largest = i32_splat(0);
    for (int i = 0; i < n; i++) {
        largest = i32_max(largest, i32_and(f32_as_i32(x[i]), i32_splat(INT32_MAX)));
    }
    const int32_t bits = i32_reduce_max(largest);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    return amax;
}

// The scale of a block, and what its elements are multiplied by: 0 and 0 for a block of next to
// nothing; NaN and 0 for one that holds NaN or infinity, so that it cannot pass for a number.
SIMD float block_scale(float amax, float *factor) {
    *factor = 0.0f;
    if (amax < 1e-30f) {
        return 0.0f;
    }
    if (!(amax < INFINITY)) {
        return NAN;
    }
    *factor = 127.0f / amax;
    return amax / 127.0f;
}

// One sixteenth of it: q of 16 elements, and their sum. With factor 0, q is 0 whatever x is.
SIMD_LONG int32_t quantize_16(f32x16 x, float factor, int8_t *q) {
    const f32x16 scaled = factor > 0.0f ? f32_mul(x, f32_splat(factor)) : f32_zero();
    const i32x16 rounded = f32_to_i32(scaled);
    i32_store_i8(q, rounded);
    return i32_reduce_add(rounded);
}

static void quantize_32(const float *x, int64_t n, int8_t *q, float *d, float *s) {
    for (int64_t block = 0; 32 * block < n; block++) {
        const int64_t i = 32 * block;
        const f32x16 parts[2] = {load_at(x, i, n), n - i > 16 ? load_at(x, i + 16, n) : f32_zero()};
        float factor;
        d[block] = block_scale(largest_magnitude(parts, 2), &factor);
        const int32_t low = quantize_16(parts[0], factor, q + i);
        const int32_t high = quantize_16(parts[1], factor, q + i + 16);
        s[block] = (float)(low + high);
    }
}

static void quantize_256(const float *x, int64_t n, int8_t *q, float *d, int16_t *sums) {
    for (int64_t block = 0; 256 * block < n; block++) {
        f32x16 parts[16];
        for (int part = 0; part < 16; part++) {
            const int64_t i = 256 * block + 16 * part;
            parts[part] = i < n ? load_at(x, i, n) : f32_zero();
        }
        float factor;
        d[block] = block_scale(largest_magnitude(parts, 16), &factor);
        for (int part = 0; part < 16; part++) {
            const int64_t sixteenth = 16 * block + part;
            sums[sixteenth] = (int16_t)quantize_16(parts[part], factor, q + 16 * sixteenth);
        }
    }
}

// --- norms and rotations -------------------------------------------------------------------------

static void rms_norm(const float *x, const float *weight, int64_t n, float epsilon, float *out) {
    f32x16 squares = f32_zero();
    for (int64_t i = 0; i < n; i += 16) {
        const f32x16 part = load_at(x, i, n);
        squares = f32_fma(part, part, squares);
    }
    const float mean = f32_reduce_add(squares) / (float)n;
    const f32x16 root = f32_sqrt(f32_splat(mean + epsilon));
    const f32x16 factor = f32_div(f32_splat(1.0f), root);
    for (int64_t i = 0; i < n; i += 16) {
        const f32x16 normed = f32_mul(load_at(x, i, n), factor);
        store_at(out, i, n, f32_mul(normed, load_at(weight, i, n)));
    }
}

// (a, b) turned by an angle.
SIMD_LONG void rotate(f32x16 *a, f32x16 *b, f32x16 cosine, f32x16 sine) {
    const f32x16 turned = f32_fma(*a, cosine, f32_neg(f32_mul(*b, sine)));
    *b = f32_fma(*a, sine, f32_mul(*b, cosine));
    *a = turned;
}

static void rope_halves(float *head, const float *cos_sin, int64_t n_pairs) {
    for (int64_t i = 0; i < n_pairs; i += 16) {
        f32x16 a = load_at(head, i, n_pairs);
        f32x16 b = load_at(head + n_pairs, i, n_pairs);
        rotate(&a, &b, load_at(cos_sin, i, n_pairs), load_at(cos_sin + n_pairs, i, n_pairs));
        store_at(head, i, n_pairs, a);
        store_at(head + n_pairs, i, n_pairs, b);
    }
}

SIMD_LONG void rotate_pairs(float *pairs, f32x16 cosine, f32x16 sine) {
    f32x16 a, b;
    f32_load_pairs(pairs, &a, &b);
    rotate(&a, &b, cosine, sine);
    f32_store_pairs(pairs, a, b);
}

static void rope_interleaved(float *head, const float *cos_sin, int64_t n_pairs) {
    const float *sines = cos_sin + n_pairs;
    int64_t i = 0;
    for (; i + 16 <= n_pairs; i += 16) {
        rotate_pairs(head + 2 * i, f32_load(cos_sin + i), f32_load(sines + i));
    }
    const int64_t left = n_pairs - i;
    if (left > 0) {
        float last[32] = {0};
        memcpy(last, head + 2 * i, (size_t)(2 * left) * sizeof *last);
        rotate_pairs(last, f32_load_part(cos_sin + i, left), f32_load_part(sines + i, left));
        memcpy(head + 2 * i, last, (size_t)(2 * left) * sizeof *last);
    }
}

// --- element by element --------------------------------------------------------------------------

static void add(const float *a, const float *b, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_add(load_at(a, i, n), load_at(b, i, n)));
    }
}

static void scale(const float *x, float factor, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_mul(load_at(x, i, n), f32_splat(factor)));
    }
}

static void add_scaled(const float *x, float factor, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_fma(load_at(x, i, n), f32_splat(factor), load_at(out, i, n)));
    }
}

static void gated_silu(const float *gate, const float *up, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_mul(f32_silu(load_at(gate, i, n)), load_at(up, i, n)));
    }
}

static void gated_gelu_tanh(const float *gate, const float *up, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_mul(f32_gelu_tanh(load_at(gate, i, n)), load_at(up, i, n)));
    }
}

static void gated_relu_squared(const float *gate, const float *up, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        // Zero first: max(0, NaN) is NaN.
        const f32x16 relu = f32_max(f32_zero(), load_at(gate, i, n));
        store_at(out, i, n, f32_mul(f32_mul(relu, relu), load_at(up, i, n)));
    }
}

SIMD f32x16 f32_soft_cap(f32x16 x, float cap) {
    return f32_mul(f32_splat(cap), f32_tanh(f32_div(x, f32_splat(cap))));
}

static void soft_cap(const float *x, float cap, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i += 16) {
        store_at(out, i, n, f32_soft_cap(load_at(x, i, n), cap));
    }
}

// --- logits --------------------------------------------------------------------------------------

static void argmax(const float *x, int64_t n, int64_t *index, float *value, int32_t *is_finite) {
    f32x16 best = f32_splat(-INFINITY);
    i32x16 best_at = i32_splat(0);
    mask16 bad = mask_first(0);
    mask16 some = mask_first(0); // lanes that have seen more than -infinity
    for (int64_t i = 0; i < n; i += 16) {
        const mask16 inside = mask_first(n - i);
        const f32x16 part = f32_select(inside, load_at(x, i, n), f32_splat(-INFINITY));
        // Greater only: the first of equals stays.
        const mask16 better = f32_gt(part, best);
        best = f32_select(better, part, best);
        best_at = i32_select(better, i32_add(i32_splat((int32_t)i), i32_iota()), best_at);
        bad = mask_or(bad, mask_except(inside, f32_lt(part, f32_splat(INFINITY))));
        some = mask_or(some, better);
    }
    float values[16];
    int32_t places[16];
    f32_store(values, best);
    i32_store(places, best_at);
    int lane = 0;
    for (int i = 1; i < 16; i++) {
        if (values[i] > values[lane] || (values[i] == values[lane] && places[i] < places[lane])) {
            lane = i;
        }
    }
    *index = places[lane];
    *value = values[lane];
    *is_finite = mask_any(some) && !mask_any(bad);
}

static float sum_exp(const float *x, int64_t n, float shift) {
    f32x16 sum = f32_zero();
    for (int64_t i = 0; i < n; i += 16) {
        const f32x16 e = f32_exp(f32_sub(load_at(x, i, n), f32_splat(shift)));
        sum = f32_add(sum, f32_select(mask_first(n - i), e, f32_zero()));
    }
    return f32_reduce_add(sum);
}

#endif
