// The simd layer for 64-bit ARM: 16 lanes are four registers. See ref/simd.h for what each
// operation means.
#ifndef ES_KERNELS_NEON_SIMD_H
#define ES_KERNELS_NEON_SIMD_H

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define SIMD      static inline __attribute__((always_inline))
#define SIMD_LONG SIMD

enum { SIMD_REGISTERS = 8 };

typedef struct {
    float32x4_t a, b, c, d;
} f32x16;

typedef struct {
    int32x4_t a, b, c, d;
} i32x16;

typedef struct {
    uint32x4_t a, b, c, d; // all bits of a lane, or none
} mask16;

// f of each quarter, and of the quarters of one or two more operands.
#define QUARTERS1(f, x)    {f((x).a), f((x).b), f((x).c), f((x).d)}
#define QUARTERS2(f, x, y) {f((x).a, (y).a), f((x).b, (y).b), f((x).c, (y).c), f((x).d, (y).d)}
#define QUARTERS3(f, x, y, z)                                                                      \
    {f((x).a, (y).a, (z).a), f((x).b, (y).b, (z).b), f((x).c, (y).c, (z).c), f((x).d, (y).d, (z).d)}

// --- int32 ---------------------------------------------------------------------------------------

SIMD i32x16 i32_splat(int32_t x) {
    const int32x4_t all = vdupq_n_s32(x);
    return (i32x16){all, all, all, all};
}

SIMD i32x16 i32_load(const int32_t *p) {
    return (i32x16){vld1q_s32(p), vld1q_s32(p + 4), vld1q_s32(p + 8), vld1q_s32(p + 12)};
}

SIMD i32x16 i32_iota(void) {
    static const int32_t lanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    return i32_load(lanes);
}

SIMD void i32_store(int32_t *p, i32x16 x) {
    vst1q_s32(p, x.a);
    vst1q_s32(p + 4, x.b);
    vst1q_s32(p + 8, x.c);
    vst1q_s32(p + 12, x.d);
}

SIMD void i32_store_i8(int8_t *p, i32x16 x) {
    const int16x8_t low = vcombine_s16(vmovn_s32(x.a), vmovn_s32(x.b));
    const int16x8_t high = vcombine_s16(vmovn_s32(x.c), vmovn_s32(x.d));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

SIMD i32x16 i32_add(i32x16 x, i32x16 y) { return (i32x16)QUARTERS2(vaddq_s32, x, y); }
SIMD i32x16 i32_sub(i32x16 x, i32x16 y) { return (i32x16)QUARTERS2(vsubq_s32, x, y); }
SIMD i32x16 i32_max(i32x16 x, i32x16 y) { return (i32x16)QUARTERS2(vmaxq_s32, x, y); }
SIMD i32x16 i32_and(i32x16 x, i32x16 y) { return (i32x16)QUARTERS2(vandq_s32, x, y); }
SIMD i32x16 i32_or(i32x16 x, i32x16 y) { return (i32x16)QUARTERS2(vorrq_s32, x, y); }

SIMD i32x16 i32_shift_left(i32x16 x, int n) {
    const i32x16 by = i32_splat(n);
    return (i32x16)QUARTERS2(vshlq_s32, x, by);
}

SIMD i32x16 i32_shift_right(i32x16 x, int n) { return i32_shift_left(x, -n); }

SIMD mask16 i32_gt(i32x16 x, i32x16 y) { return (mask16)QUARTERS2(vcgtq_s32, x, y); }

SIMD i32x16 i32_select(mask16 mask, i32x16 x, i32x16 y) {
    return (i32x16)QUARTERS3(vbslq_s32, mask, x, y);
}

SIMD int32_t i32_reduce_add(i32x16 x) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(x.a, x.b), vaddq_s32(x.c, x.d)));
}

SIMD int32_t i32_reduce_max(i32x16 x) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.a, x.b), vmaxq_s32(x.c, x.d)));
}

// --- masks ---------------------------------------------------------------------------------------

SIMD mask16 mask_first(int64_t n) {
    return i32_gt(i32_splat((int32_t)(n < 0 ? 0 : n > 16 ? 16 : n)), i32_iota());
}

SIMD mask16 mask_and(mask16 x, mask16 y) { return (mask16)QUARTERS2(vandq_u32, x, y); }
SIMD mask16 mask_or(mask16 x, mask16 y) { return (mask16)QUARTERS2(vorrq_u32, x, y); }
SIMD mask16 mask_except(mask16 x, mask16 y) { return (mask16)QUARTERS2(vbicq_u32, x, y); }

SIMD int mask_any(mask16 x) {
    return vmaxvq_u32(vorrq_u32(vorrq_u32(x.a, x.b), vorrq_u32(x.c, x.d))) != 0;
}

// --- float32 -------------------------------------------------------------------------------------

SIMD f32x16 f32_splat(float x) {
    const float32x4_t all = vdupq_n_f32(x);
    return (f32x16){all, all, all, all};
}

SIMD f32x16 f32_zero(void) { return f32_splat(0.0f); }

SIMD f32x16 f32_load(const float *p) {
    return (f32x16){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}

SIMD void f32_store(float *p, f32x16 x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}

// There are no masked moves: parts go by way of memory.
SIMD f32x16 f32_load_part(const float *p, int64_t n) {
    float all[16] = {0};
    memcpy(all, p, (size_t)n * sizeof *p);
    return f32_load(all);
}

SIMD void f32_store_part(float *p, f32x16 x, int64_t n) {
    float all[16];
    f32_store(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}

SIMD void f32_load_pairs(const float *p, f32x16 *even, f32x16 *odd) {
    const float32x4x2_t a = vld2q_f32(p), b = vld2q_f32(p + 8);
    const float32x4x2_t c = vld2q_f32(p + 16), d = vld2q_f32(p + 24);
    *even = (f32x16){a.val[0], b.val[0], c.val[0], d.val[0]};
    *odd = (f32x16){a.val[1], b.val[1], c.val[1], d.val[1]};
}

SIMD void f32_store_pairs(float *p, f32x16 even, f32x16 odd) {
    vst2q_f32(p, ((float32x4x2_t){{even.a, odd.a}}));
    vst2q_f32(p + 8, ((float32x4x2_t){{even.b, odd.b}}));
    vst2q_f32(p + 16, ((float32x4x2_t){{even.c, odd.c}}));
    vst2q_f32(p + 24, ((float32x4x2_t){{even.d, odd.d}}));
}

SIMD f32x16 f32_add(f32x16 x, f32x16 y) { return (f32x16)QUARTERS2(vaddq_f32, x, y); }
SIMD f32x16 f32_sub(f32x16 x, f32x16 y) { return (f32x16)QUARTERS2(vsubq_f32, x, y); }
SIMD f32x16 f32_mul(f32x16 x, f32x16 y) { return (f32x16)QUARTERS2(vmulq_f32, x, y); }
SIMD f32x16 f32_div(f32x16 x, f32x16 y) { return (f32x16)QUARTERS2(vdivq_f32, x, y); }
SIMD f32x16 f32_sqrt(f32x16 x) { return (f32x16)QUARTERS1(vsqrtq_f32, x); }
SIMD f32x16 f32_abs(f32x16 x) { return (f32x16)QUARTERS1(vabsq_f32, x); }
SIMD f32x16 f32_neg(f32x16 x) { return (f32x16)QUARTERS1(vnegq_f32, x); }

// The instructions take the addend first.
SIMD f32x16 f32_fma(f32x16 x, f32x16 y, f32x16 z) { return (f32x16)QUARTERS3(vfmaq_f32, z, x, y); }

SIMD f32x16 f32_fnma(f32x16 x, f32x16 y, f32x16 z) { return (f32x16)QUARTERS3(vfmsq_f32, z, x, y); }

SIMD mask16 f32_gt(f32x16 x, f32x16 y) { return (mask16)QUARTERS2(vcgtq_f32, x, y); }
SIMD mask16 f32_lt(f32x16 x, f32x16 y) { return f32_gt(y, x); }
SIMD mask16 f32_eq(f32x16 x, f32x16 y) { return (mask16)QUARTERS2(vceqq_f32, x, y); }

SIMD f32x16 f32_select(mask16 mask, f32x16 x, f32x16 y) {
    return (f32x16)QUARTERS3(vbslq_f32, mask, x, y);
}

// Not vmaxq_f32 and vminq_f32, which have rules of their own for NaN and zeros.
SIMD f32x16 f32_max(f32x16 x, f32x16 y) { return f32_select(f32_gt(x, y), x, y); }
SIMD f32x16 f32_min(f32x16 x, f32x16 y) { return f32_select(f32_lt(x, y), x, y); }

SIMD float f32_reduce_add(f32x16 x) {
    const float32x4_t four = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}

SIMD float32x4_t quarter_max(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}

SIMD float f32_reduce_max(f32x16 x) {
    const float32x4_t four = quarter_max(quarter_max(x.a, x.c), quarter_max(x.b, x.d));
    const float32x4_t two = quarter_max(four, vextq_f32(four, four, 2));
    return vgetq_lane_f32(quarter_max(two, vdupq_laneq_f32(two, 1)), 0);
}

// --- halfs ---------------------------------------------------------------------------------------

SIMD float32x4_t widen(uint16x4_t halfs) { return vcvt_f32_f16(vreinterpret_f16_u16(halfs)); }

SIMD uint16x4_t narrow(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }

SIMD f32x16 f16_load(const uint16_t *p) {
    const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return (f32x16){widen(vget_low_u16(low)), widen(vget_high_u16(low)), widen(vget_low_u16(high)),
                    widen(vget_high_u16(high))};
}

SIMD void f16_store(uint16_t *p, f32x16 x) {
    vst1q_u16(p, vcombine_u16(narrow(x.a), narrow(x.b)));
    vst1q_u16(p + 8, vcombine_u16(narrow(x.c), narrow(x.d)));
}

SIMD f32x16 f16_load_part(const uint16_t *p, int64_t n) {
    uint16_t all[16] = {0};
    memcpy(all, p, (size_t)n * sizeof *p);
    return f16_load(all);
}

SIMD void f16_store_part(uint16_t *p, f32x16 x, int64_t n) {
    uint16_t all[16];
    f16_store(all, x);
    memcpy(p, all, (size_t)n * sizeof *p);
}

// --- small integers ------------------------------------------------------------------------------

SIMD f32x16 i8_widen(int8x16_t bytes) {
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_s8(vget_high_s8(bytes));
    return (f32x16){vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                    vcvtq_f32_s32(vmovl_s16(vget_high_s16(low))),
                    vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                    vcvtq_f32_s32(vmovl_s16(vget_high_s16(high)))};
}

SIMD f32x16 i8_load(const uint8_t *p) { return i8_widen(vreinterpretq_s8_u8(vld1q_u8(p))); }

// Of nibbles, which are integers plus 8.
SIMD f32x16 i4_widen(uint8x16_t nibbles) {
    return i8_widen(vsubq_s8(vreinterpretq_s8_u8(nibbles), vdupq_n_s8(8)));
}

SIMD f32x16 i4_load_low(const uint8_t *p) {
    return i4_widen(vandq_u8(vld1q_u8(p), vdupq_n_u8(15)));
}

SIMD f32x16 i4_load_high(const uint8_t *p) { return i4_widen(vshrq_n_u8(vld1q_u8(p), 4)); }

// --- between types -------------------------------------------------------------------------------

SIMD i32x16 f32_to_i32(f32x16 x) { return (i32x16)QUARTERS1(vcvtnq_s32_f32, x); }
SIMD f32x16 i32_to_f32(i32x16 x) { return (f32x16)QUARTERS1(vcvtq_f32_s32, x); }
SIMD i32x16 f32_as_i32(f32x16 x) { return (i32x16)QUARTERS1(vreinterpretq_s32_f32, x); }
SIMD f32x16 i32_as_f32(i32x16 x) { return (f32x16)QUARTERS1(vreinterpretq_f32_s32, x); }

#undef QUARTERS1
#undef QUARTERS2
#undef QUARTERS3

#endif
