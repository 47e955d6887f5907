// Matmul of 256-wide types, out of packed or expanded panels.
#ifndef ES_KERNELS_GENERIC_MATMUL_256_H
#define ES_KERNELS_GENERIC_MATMUL_256_H

#include "kernels/generic/dot_lines.h"
#include "kernels/generic/scales.h"

enum { CHUNK_256 = 4 }; // blocks that are expanded at a time

typedef struct {
    uint8_t lines[64][64];
    int32_t scale[16][16]; // (group, row), as sums_scaled wants them
    int32_t min[8][16];    // (pair of groups, row): what goes with the sums of q
    float d[16];
    float m[16]; // types with minimums
} expanded_256;

// Whether the sums of q are needed at all: for minimums, or to take an offset off.
SIMD int reads_sums(const format *f) { return f->has_min || f->offset != 0; }

SIMD int n_groups(const format *f) { return 64 / f->group_lines; }

SIMD void expand_256(es_type type, const uint8_t *block, int64_t n_blocks, expanded_256 *out) {
    const format f = format_of(type);
    block_scales scales;
    for (int64_t b = 0; b < n_blocks; b++, block += f.block_bytes, out++) {
        const int run_lines = f.run_groups * f.group_lines;
        for (int run = 0; run < f.n_runs; run++) {
            const uint8_t *lines = block + f.runs_at + run * f.run_bytes;
            UNROLL for (int i = 0; i < run_lines / 8; i++) {
                UNROLL for (int t = 8 * i; t < 8 * i + 8; t += 2) {
                    expanded_store(out->lines[run * run_lines + t], packed_line(type, lines, t),
                                   packed_line(type, lines, t + 1));
                }
            }
        }
        read_scales(type, block, &scales);
        const int8_t *min = f.has_min ? scales.min : scales.scale;
        for (int pair = 0; pair < n_groups(&f) / 2; pair++) {
            const i32x16 both = pairs_load(scales.scale + 32 * pair);
            i32_store(out->scale[2 * pair], pairs_scale(both, 0));
            i32_store(out->scale[2 * pair + 1], pairs_scale(both, 1));
            i32_store(out->min[pair], pairs_load(min + 32 * pair));
        }
        f32_store(out->d, f16_load((const uint16_t *)block));
        if (f.has_min) {
            f32_store(out->m, f16_load((const uint16_t *)(block + 32)));
        }
    }
}

// totals[r] = sum over groups of min * (sum of q). `sums16` has one sum for each 16 elements.
SIMD void dot_sums(const format *f, const int8_t *packed_min, const expanded_256 *wide,
                   const int16_t *sums16, int64_t stride, int R, i32x16 *totals) {
    int16_t of_groups[ROWS_MAX][8]; // where groups are 32 wide
    UNROLL for (int r = 0; r < R; r++) {
        totals[r] = i32_splat(0);
        for (int i = 0; i < 8 && f->group_lines == 8; i++) {
            of_groups[r][i] =
                (int16_t)(sums16[r * stride + 2 * i] + sums16[r * stride + 2 * i + 1]);
        }
    }
    UNROLL for (int pair = 0; pair < n_groups(f) / 2; pair++) {
        const i32x16 both =
            packed_min != NULL ? pairs_load(packed_min + 32 * pair) : i32_load(wide->min[pair]);
        UNROLL for (int r = 0; r < R; r++) {
            const int16_t *of_16 = sums16 + r * stride + 2 * pair;
            totals[r] =
                pairs_dot(totals[r], both, f->group_lines == 8 ? of_groups[r] + 2 * pair : of_16);
        }
    }
}

SIMD int log2_of(int offset) { return offset == 4 ? 2 : offset == 32 ? 5 : 7; }

// F = fma(d * da, I, F), then F = fma(-(dmin * da), N, F) for types with minimums.
SIMD f32x16 close_256(const format *f, i32x16 I, i32x16 N, f32x16 d, f32x16 m, float da, f32x16 F) {
    if (f->offset != 0) {
        I = i32_sub(I, i32_shift_left(N, log2_of(f->offset)));
    }
    F = f32_fma(f32_mul(d, f32_splat(da)), i32_to_f32(I), F);
    return f->has_min ? f32_fnma(f32_mul(m, f32_splat(da)), i32_to_f32(N), F) : F;
}

SIMD void dot_packed_block(es_type type, const uint8_t *block, const block_scales *scales,
                           const int8_t *q, int64_t stride, int R, i32x16 *totals) {
    const format f = format_of(type);
    const int run_lines = f.run_groups * f.group_lines;
    for (int run = 0; run < f.n_runs; run++) {
        const uint8_t *lines = block + f.runs_at + run * f.run_bytes;
        const int8_t *pairs = scales->scale + run * f.run_groups * 16;
        UNROLL for (int group = 0; group < f.run_groups; group++) {
            const i32x16 scale = pairs_scale(pairs_load(pairs + group / 2 * 32), group % 2);
            dot_lines(type, PACKED, lines, group * f.group_lines, f.group_lines,
                      q + run * run_lines * 4, stride, R, &scale, totals);
        }
    }
}

SIMD void dot_expanded_block(es_type type, const expanded_256 *block, const int8_t *q,
                             int64_t stride, int R, i32x16 *totals) {
    const format f = format_of(type);
    for (int group = 0; group < n_groups(&f); group++) {
        const i32x16 scale = i32_load(block->scale[group]);
        dot_expanded(type, block->lines[group * f.group_lines], f.group_lines,
                     q + group * f.group_lines * 4, stride, R, &scale, totals);
    }
}

// P panels, block by block in turn, times R rows. Continues from what is in out unless this is the
// panel's first stretch.
SIMD void matmul_256(es_type type, line_source source, int P, int R, const panel_rows *p) {
    const format f = format_of(type);
    const int64_t stride = p->a->stride_q, stride_d = p->a->stride_d;
    const int8_t *q = p->a->q + p->first_row * stride + p->first_block * 256;
    const float *da = p->a->d + p->first_row * stride_d + p->first_block;
    const int16_t *sums16 = p->a->sums + (p->first_row * stride + p->first_block * 256) / 16;
    const int64_t block_bytes = source == PACKED ? f.block_bytes : (int64_t)sizeof(expanded_256);
    const uint8_t *block = p->panel;
    block_scales scales;
    f32x16 F[ROWS_MAX];
    UNROLL for (int i = 0; i < P * R; i++) {
        F[i] = source == PACKED || p->first_block == 0 ? f32_zero() : f32_load(p->out + i * p->ld);
    }
    for (int64_t b = 0; b < p->n_blocks; b++, q += 256, da++, sums16 += 16, block += block_bytes) {
        UNROLL for (int panel = 0; panel < P; panel++) {
            const uint8_t *at = block + panel * p->panel_bytes;
            if (source == PACKED && P == 1) {
                fetch_ahead(at, f.block_bytes);
            }
            const expanded_256 *wide = (const expanded_256 *)at;
            i32x16 I[ROWS_MAX], N[ROWS_MAX];
            UNROLL for (int r = 0; r < R; r++) { I[r] = N[r] = i32_splat(0); }
            if (source == PACKED) {
                read_scales(type, at, &scales);
                dot_packed_block(type, at, &scales, q, stride, R, I);
            } else {
                dot_expanded_block(type, wide, q, stride, R, I);
            }
            if (reads_sums(&f)) {
                const int8_t *min = f.has_min ? scales.min : scales.scale;
                dot_sums(&f, source == PACKED ? min : NULL, wide, sums16, stride / 16, R, N);
            }
            const uint16_t *halfs = (const uint16_t *)at;
            const f32x16 d = source == PACKED ? f16_load(halfs) : f32_load(wide->d);
            f32x16 m = f32_zero();
            if (f.has_min) {
                m = source == PACKED ? f16_load(halfs + 16) : f32_load(wide->m);
            }
            UNROLL for (int r = 0; r < R; r++) {
                f32x16 *sum = &F[panel * R + r];
                *sum = close_256(&f, I[r], N[r], d, m, da[r * stride_d], *sum);
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
