// The reference matmul: one lane of one block at a time, straight from the contract. It reads GGUF
// blocks back out of the panel, so it shares nothing with the sets that are compared with it.
#include <string.h>

#include "kernels/matmul.h"
#include "kernels/ref/simd.h"
#include "quants/integers.h"
#include "quants/lanes.h"

typedef struct {
    const es_activation *a;
    int64_t n_rows;
    float *out; // (n_rows, ld), at the panel's first lane
    int64_t ld;
} target;

static int32_t dot(const int16_t *w, const int8_t *q, int n) {
    int32_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += w[i] * q[i];
    }
    return sum;
}

// F = fma(d, da * S, F), then F = fma(m, da * s, F) for types with a minimum.
static void block_32(const es_block_integers *block, int has_min, int64_t b, int lane,
                     const target *t) {
    for (int64_t r = 0; r < t->n_rows; r++) {
        const int8_t *q = t->a->q + r * t->a->stride_q + b * 32;
        const float da = t->a->d[r * t->a->stride_d + b];
        float *f = t->out + r * t->ld + lane;
        *f = scalar_fma(block->d, da * (float)dot(block->w, q, 32), *f);
        if (has_min) {
            *f = scalar_fma(block->m, da * t->a->s[r * t->a->stride_d + b], *f);
        }
    }
}

// F = fma(d * da, I, F), then F = fma(-(dmin * da), N, F) for types with minimums.
static void block_256(const es_block_integers *block, int has_min, int64_t b, int lane,
                      const target *t) {
    for (int64_t r = 0; r < t->n_rows; r++) {
        const int8_t *q = t->a->q + r * t->a->stride_q + b * 256;
        const int16_t *sums = t->a->sums + (r * t->a->stride_q + b * 256) / 16;
        const float da = t->a->d[r * t->a->stride_d + b];
        int32_t sum = 0, min = 0;
        for (int group = 0; group < 16; group++) {
            sum += block->scale[group] * dot(block->w + 16 * group, q + 16 * group, 16);
            min += block->min[group] * sums[group];
        }
        float *f = t->out + r * t->ld + lane;
        *f = scalar_fma(block->d * da, (float)sum, *f);
        if (has_min) {
            *f = scalar_fma(-(block->m * da), (float)min, *f);
        }
    }
}

static int has_min(es_type type) {
    return type == ES_TYPE_Q4_1 || type == ES_TYPE_Q5_1 || type == ES_TYPE_Q2_K ||
           type == ES_TYPE_Q4_K || type == ES_TYPE_Q5_K;
}

static float float_weight(es_type type, const es_lane_layout *layout, const uint8_t *panel,
                          int64_t k, int lane) {
    uint8_t bytes[ES_LANE_MAX];
    float w;
    es_panel_block_unpack(layout, panel + k * layout->block_bytes * ES_LANES, lane, bytes);
    es_dequantize(type, bytes, layout->block_bytes, 1, &w);
    return w;
}

// f = fma(w, x, f) over a run; group += f over the runs of a group; F += group.
static void float_lane(const es_weight *weight, const es_lane_layout *layout, const uint8_t *panel,
                       int lane, const target *t) {
    for (int64_t r = 0; r < t->n_rows; r++) {
        const float *x = t->a->x + r * t->a->stride_x;
        float F = 0, group = 0, f = 0;
        for (int64_t k = 0; k < weight->n_cols; k++) {
            f = scalar_fma(float_weight(weight->type, layout, panel, k, lane), x[k], f);
            const int is_last = k + 1 == weight->n_cols;
            if ((k + 1) % ES_FLOAT_RUN == 0 || is_last) {
                group += f;
                f = 0;
            }
            if ((k + 1) % ES_FLOAT_GROUP == 0 || is_last) {
                F += group;
                group = 0;
            }
        }
        t->out[r * t->ld + lane] = F;
    }
}

static void panel_block(const es_weight *weight, const es_lane_layout *layout, const uint8_t *at,
                        int64_t b, const target *t) {
    uint8_t block[ES_LANE_MAX];
    for (int lane = 0; lane < ES_LANES; lane++) {
        es_block_integers integers;
        es_panel_block_unpack(layout, at, lane, block);
        es_block_integers_read(weight->type, block, &integers);
        if (layout->block_elements == 32) {
            block_32(&integers, has_min(weight->type), b, lane, t);
        } else {
            block_256(&integers, has_min(weight->type), b, lane, t);
        }
    }
}

void es_matmul_ref(const es_weight *weight, int64_t panel, int64_t n_panels, const es_activation *a,
                   int64_t n_rows, float *out, int64_t ld) {
    const es_lane_layout *layout = es_lane_layout_of(weight->type);
    const int64_t n_blocks = weight->n_cols / layout->block_elements;
    for (int64_t p = 0; p < n_panels; p++) {
        const target t = {a, n_rows, out + p * ES_LANES, ld};
        for (int64_t r = 0; r < n_rows; r++) {
            memset(t.out + r * ld, 0, ES_LANES * sizeof *out);
        }
        const uint8_t *at = weight->data + (panel + p) * weight->panel_bytes;
        if (layout->block_elements == 1) {
            for (int lane = 0; lane < ES_LANES; lane++) {
                float_lane(weight, layout, at, lane, &t);
            }
            continue;
        }
        for (int64_t b = 0; b < n_blocks; b++) {
            panel_block(weight, layout, at, b, &t);
            at += (int64_t)layout->block_bytes * ES_LANES;
        }
    }
}
