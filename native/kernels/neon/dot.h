// Lines and their integer products, for NEON with the dot-product extension: a line is four
// registers of 4 rows, and an activation quad is a lane of a register.
#ifndef ES_KERNELS_NEON_DOT_H
#define ES_KERNELS_NEON_DOT_H

#include "kernels/neon/simd.h"

enum {
    DOT_TILE = 4,      // rows of a tile over an expanded panel
    DOT_EXPAND_32 = 8, // from this many rows on, panels of 32-wide types are expanded
    DOT_EXPAND_256 = 8,
    DOT_FLOAT_TILE = 4,  // rows of a tile over float weights
    DOT_SIGNED_BIAS = 0, // what signed weights have too much in products
};

typedef struct {
    uint8x16_t a, b, c, d;
} line; // 4 signed or unsigned bytes of each of 16 rows

typedef i32x16 sums; // of lines: one int32 a row

SIMD line line_load(const uint8_t *p) {
    return (line){vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)};
}

SIMD void line_store(uint8_t *p, line x) {
    vst1q_u8(p, x.a);
    vst1q_u8(p + 16, x.b);
    vst1q_u8(p + 32, x.c);
    vst1q_u8(p + 48, x.d);
}

SIMD line line_or(line x, line y) {
    return (line){vorrq_u8(x.a, y.a), vorrq_u8(x.b, y.b), vorrq_u8(x.c, y.c), vorrq_u8(x.d, y.d)};
}

// The bits `mask << from` of every byte, moved to `mask << to`.
SIMD uint8x16_t quarter_field(uint8x16_t x, int from, int to, int mask) {
    if (from != to) {
        x = vshlq_u8(x, vdupq_n_s8((int8_t)(to - from)));
    }
    const int kept = from >= to ? 0xff >> (from - to) : 0xff << (to - from) & 0xff;
    return kept == mask << to ? x : vandq_u8(x, vdupq_n_u8((uint8_t)(mask << to)));
}

SIMD line line_field(line x, int from, int to, int mask) {
    return (line){quarter_field(x.a, from, to, mask), quarter_field(x.b, from, to, mask),
                  quarter_field(x.c, from, to, mask), quarter_field(x.d, from, to, mask)};
}

// Bytes of x, below 16, to entries of the table.
SIMD line line_look_up(const int8_t table[16], line x) {
    const uint8x16_t entries = vreinterpretq_u8_s8(vld1q_s8(table));
    return (line){vqtbl1q_u8(entries, x.a), vqtbl1q_u8(entries, x.b), vqtbl1q_u8(entries, x.c),
                  vqtbl1q_u8(entries, x.d)};
}

// `largest` is the largest weight, or 0 where weights are signed.
SIMD int sums_capacity(int largest) {
    (void)largest;
    return 8;
}

SIMD sums sums_zero(void) { return i32_splat(0); }

// The lane has to be a constant as the compiler parses it.
SIMD int32x4_t quarter_dot(int32x4_t s, uint8x16_t w, int8x16_t q, int lane) {
    const int8x16_t weights = vreinterpretq_s8_u8(w); // below 128, or signed
    switch (lane) {
    case 0:
        return vdotq_laneq_s32(s, weights, q, 0);
    case 1:
        return vdotq_laneq_s32(s, weights, q, 1);
    case 2:
        return vdotq_laneq_s32(s, weights, q, 2);
    default:
        return vdotq_laneq_s32(s, weights, q, 3);
    }
}

// Adds line w times quad t of q.
SIMD sums sums_add(sums s, line w, const int8_t *q, int t, int largest) {
    (void)largest;
    const int8x16_t quads = vld1q_s8(q + t / 4 * 16);
    return (sums){quarter_dot(s.a, w.a, quads, t % 4), quarter_dot(s.b, w.b, quads, t % 4),
                  quarter_dot(s.c, w.c, quads, t % 4), quarter_dot(s.d, w.d, quads, t % 4)};
}

// total + the sums; total + scale * the sums.
SIMD i32x16 sums_total(i32x16 total, sums s) { return i32_add(total, s); }

SIMD i32x16 sums_scaled(i32x16 total, sums s, i32x16 scale) {
    return (i32x16){vmlaq_s32(total.a, s.a, scale.a), vmlaq_s32(total.b, s.b, scale.b),
                    vmlaq_s32(total.c, s.c, scale.c), vmlaq_s32(total.d, s.d, scale.d)};
}

// Two int16 a row, from two int8 a row: the scales or minimums of two groups.
SIMD i32x16 pairs_load(const int8_t *p) {
    const int8x16_t low = vld1q_s8(p), high = vld1q_s8(p + 16);
    return (i32x16){vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(low))),
                    vreinterpretq_s32_s16(vmovl_high_s8(low)),
                    vreinterpretq_s32_s16(vmovl_s8(vget_low_s8(high))),
                    vreinterpretq_s32_s16(vmovl_high_s8(high))};
}

// One of a pair as sums_scaled wants it.
SIMD int32x4_t quarter_scale(int32x4_t pairs, int odd) {
    return vshrq_n_s32(odd ? pairs : vshlq_n_s32(pairs, 16), 16);
}

SIMD i32x16 pairs_scale(i32x16 pairs, int odd) {
    return (i32x16){quarter_scale(pairs.a, odd), quarter_scale(pairs.b, odd),
                    quarter_scale(pairs.c, odd), quarter_scale(pairs.d, odd)};
}

// total + first of pair * q[0] + second of pair * q[1]
SIMD int32x4_t quarter_pairs(int32x4_t total, int32x4_t pairs, const int16_t *q) {
    total = vmlaq_n_s32(total, quarter_scale(pairs, 0), q[0]);
    return vmlaq_n_s32(total, quarter_scale(pairs, 1), q[1]);
}

SIMD i32x16 pairs_dot(i32x16 total, i32x16 pairs, const int16_t *q) {
    return (i32x16){quarter_pairs(total.a, pairs.a, q), quarter_pairs(total.b, pairs.b, q),
                    quarter_pairs(total.c, pairs.c, q), quarter_pairs(total.d, pairs.d, q)};
}

SIMD i32x16 u16_load(const uint8_t *p) {
    const uint16x8_t low = vreinterpretq_u16_u8(vld1q_u8(p));
    const uint16x8_t high = vreinterpretq_u16_u8(vld1q_u8(p + 16));
    return (i32x16){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                    vreinterpretq_s32_u32(vmovl_high_u16(low)),
                    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                    vreinterpretq_s32_u32(vmovl_high_u16(high))};
}

SIMD i32x16 u8_load(const uint8_t *p) {
    const uint8x16_t bytes = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return (i32x16){vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))),
                    vreinterpretq_s32_u32(vmovl_high_u16(low)),
                    vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))),
                    vreinterpretq_s32_u32(vmovl_high_u16(high))};
}

#endif
