// Matmul of 32-wide types, out of packed or expanded panels.
#ifndef ES_KERNELS_GENERIC_MATMUL_32_H
#define ES_KERNELS_GENERIC_MATMUL_32_H

#include "kernels/generic/dot_lines.h"

enum { CHUNK_32 = 32 }; // blocks that are expanded at a time

typedef struct {
    uint8_t lines[8][64];
    float d[16];
    float m[16]; // types with a minimum
} expanded_32;

// Half of 2^(e - 127): see e8m0_to_half_float.
SIMD f32x16 e8m0_load(const uint8_t *p) {
    const i32x16 e = u8_load(p);
    const i32x16 normal = i32_shift_left(i32_sub(e, i32_splat(1)), 23);
    const i32x16 subnormal = i32_shift_left(i32_add(e, i32_splat(1)), 21);
    return i32_as_f32(i32_select(i32_gt(i32_splat(2), e), subnormal, normal));
}

SIMD f32x16 packed_d(es_type type, const uint8_t *block) {
    return type == ES_TYPE_MXFP4 ? e8m0_load(block) : f16_load((const uint16_t *)block);
}

SIMD f32x16 packed_m(const uint8_t *block) { return f16_load((const uint16_t *)(block + 32)); }

SIMD void expand_32(es_type type, const uint8_t *block, int64_t n_blocks, expanded_32 *out) {
    const format f = format_of(type);
    for (int64_t b = 0; b < n_blocks; b++, block += f.block_bytes, out++) {
        const uint8_t *run = block + f.runs_at;
        UNROLL for (int i = 0; i < 8; i += 2) {
            expanded_store(out->lines[i], packed_line(type, run, i), packed_line(type, run, i + 1));
        }
        f32_store(out->d, packed_d(type, block));
        if (f.has_min) {
            f32_store(out->m, packed_m(block));
        }
    }
}

// F = fma(d, da * S, F), then F = fma(m, da * s, F) for types with a minimum.
SIMD f32x16 close_32(const format *f, i32x16 total, f32x16 d, f32x16 m, float da, float s,
                     f32x16 F) {
    f32x16 sum = i32_to_f32(total);
    if (f->offset != 0) { // exact: both are integers below 2^24
        sum = f32_fma(f32_splat((float)-f->offset), f32_splat(s), sum);
    }
    F = f32_fma(d, f32_mul(f32_splat(da), sum), F);
    return f->has_min ? f32_fma(m, f32_mul(f32_splat(da), f32_splat(s)), F) : F;
}

// P panels, block by block in turn, times R rows. Continues from what is in out unless this is the
// panel's first stretch.
SIMD void matmul_32(es_type type, line_source source, int P, int R, const panel_rows *p) {
    const format f = format_of(type);
    const int64_t stride = p->a->stride_q, stride_d = p->a->stride_d;
    const int8_t *q = p->a->q + p->first_row * stride + p->first_block * 32;
    const float *da = p->a->d + p->first_row * stride_d + p->first_block;
    const float *s = p->a->s + p->first_row * stride_d + p->first_block;
    const int64_t block_bytes = source == PACKED ? f.block_bytes : (int64_t)sizeof(expanded_32);
    const uint8_t *block = p->panel;
    f32x16 F[ROWS_MAX];
    UNROLL for (int i = 0; i < P * R; i++) {
        F[i] = source == PACKED || p->first_block == 0 ? f32_zero() : f32_load(p->out + i * p->ld);
    }
    for (int64_t b = 0; b < p->n_blocks; b++, q += 32, da++, s++, block += block_bytes) {
        UNROLL for (int panel = 0; panel < P; panel++) {
            const uint8_t *at = block + panel * p->panel_bytes;
            if (source == PACKED && P == 1) {
                fetch_ahead(at, f.block_bytes);
            }
            const expanded_32 *wide = (const expanded_32 *)at;
            i32x16 totals[ROWS_MAX];
            UNROLL for (int r = 0; r < R; r++) { totals[r] = i32_splat(0); }
            if (source == PACKED) {
                dot_lines(type, PACKED, at + f.runs_at, 0, 8, q, stride, R, NULL, totals);
            } else {
                dot_expanded(type, wide->lines[0], 8, q, stride, R, NULL, totals);
            }
            const f32x16 d = source == PACKED ? packed_d(type, at) : f32_load(wide->d);
            f32x16 m = f32_zero();
            if (f.has_min) {
                m = source == PACKED ? packed_m(at) : f32_load(wide->m);
            }
            UNROLL for (int r = 0; r < R; r++) {
                f32x16 *sum = &F[panel * R + r];
                *sum = close_32(&f, totals[r], d, m, da[r * stride_d], s[r * stride_d], *sum);
            }
        }
    }
    UNROLL for (int panel = 0; panel < P; panel++) {
        UNROLL for (int r = 0; r < R; r++) {
            f32_store(p->out + r * p->ld + panel * ES_LANES, F[panel * R + r]);
        }
    }
}

#endif
