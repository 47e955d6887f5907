// The matmul of a kernel set, all types: included by the set's matmul.c after its simd.h and dot.h.
//
// Few rows: every panel is read once, bits become weights in registers. Many rows: a stretch of a
// panel is expanded to bytes that stay in the nearest cache, and tiles of rows run over it. The
// order of every sum is the contract's either way, so the same bits come out.
#ifndef ES_KERNELS_GENERIC_MATMUL_H
#define ES_KERNELS_GENERIC_MATMUL_H

#include "kernels/generic/matmul_256.h"
#include "kernels/generic/matmul_32.h"
#include "kernels/generic/matmul_float.h"

enum {
    PACKED_ROWS = 4,    // most rows of a pass over a packed panel
    PACKED_STREAMS = 4, // panels that one row's pass reads in turns, where that is faster
};

typedef void pass(const panel_rows *p);

// What is compiled once per quant type.
typedef struct {
    pass *packed[PACKED_ROWS]; // 1, 2, ... rows over a packed panel
    pass *streams;             // 1 row over PACKED_STREAMS of them; null where one is as fast
    pass *expanded;            // DOT_TILE rows over an expanded one
    void (*expand)(const uint8_t *blocks, int64_t n_blocks, void *out);
    int32_t block_elements;
    int32_t chunk_blocks; // what fits into `expansion`
    int32_t expand_rows;  // from this many rows on, panels are expanded
} integer_kernels;

typedef union {
    expanded_32 blocks_32[CHUNK_32];
    expanded_256 blocks_256[CHUNK_256];
} expansion;

// --- instances -----------------------------------------------------------------------------------

#define PASS static __attribute__((noinline)) void

#define INTEGER_KERNELS(name, T, width, streams)                                                   \
    PASS name##_1(const panel_rows *p) { matmul_##width(T, PACKED, 1, 1, p); }                     \
    PASS name##_2(const panel_rows *p) { matmul_##width(T, PACKED, 1, 2, p); }                     \
    PASS name##_3(const panel_rows *p) { matmul_##width(T, PACKED, 1, 3, p); }                     \
    PASS name##_4(const panel_rows *p) { matmul_##width(T, PACKED, 1, 4, p); }                     \
    PASS name##_tile(const panel_rows *p) { matmul_##width(T, EXPANDED, 1, DOT_TILE, p); }         \
    PASS name##_expand(const uint8_t *blocks, int64_t n_blocks, void *out) {                       \
        expand_##width(T, blocks, n_blocks, out);                                                  \
    }                                                                                              \
    static const integer_kernels name = {{name##_1, name##_2, name##_3, name##_4},                 \
                                         streams,                                                  \
                                         name##_tile,                                              \
                                         name##_expand,                                            \
                                         width,                                                    \
                                         CHUNK_##width,                                            \
                                         DOT_EXPAND_##width};

// Its blocks are long and take little work: several streams come from memory a tenth faster.
PASS q8_0_streams(const panel_rows *p) { matmul_32(ES_TYPE_Q8_0, PACKED, PACKED_STREAMS, 1, p); }

INTEGER_KERNELS(q4_0, ES_TYPE_Q4_0, 32, NULL)
INTEGER_KERNELS(q4_1, ES_TYPE_Q4_1, 32, NULL)
INTEGER_KERNELS(q5_0, ES_TYPE_Q5_0, 32, NULL)
INTEGER_KERNELS(q5_1, ES_TYPE_Q5_1, 32, NULL)
INTEGER_KERNELS(q8_0, ES_TYPE_Q8_0, 32, q8_0_streams)
INTEGER_KERNELS(iq4_nl, ES_TYPE_IQ4_NL, 32, NULL)
INTEGER_KERNELS(mxfp4, ES_TYPE_MXFP4, 32, NULL)
INTEGER_KERNELS(q2_k, ES_TYPE_Q2_K, 256, NULL)
INTEGER_KERNELS(q3_k, ES_TYPE_Q3_K, 256, NULL)
INTEGER_KERNELS(q4_k, ES_TYPE_Q4_K, 256, NULL)
INTEGER_KERNELS(q5_k, ES_TYPE_Q5_K, 256, NULL)
INTEGER_KERNELS(q6_k, ES_TYPE_Q6_K, 256, NULL)
INTEGER_KERNELS(iq4_xs, ES_TYPE_IQ4_XS, 256, NULL)

// --- integer types -------------------------------------------------------------------------------

// `n_rows` rows over packed panels, in as few passes as possible, of nearly equal size.
static void packed_rows(const integer_kernels *k, const es_weight *weight, int64_t panel,
                        int64_t n_panels, const es_activation *a, int64_t first_row, int64_t n_rows,
                        float *out, int64_t ld) {
    panel_rows rows = {
        .panel_bytes = weight->panel_bytes,
        .n_blocks = weight->n_cols / k->block_elements,
        .a = a,
        .ld = ld,
    };
    for (int64_t p = 0; p < n_panels; p++) {
        rows.panel = weight->data + (panel + p) * weight->panel_bytes;
        int64_t row = first_row, passes = (n_rows + PACKED_ROWS - 1) / PACKED_ROWS;
        if (n_rows == 1 && k->streams != NULL && p + PACKED_STREAMS <= n_panels) {
            rows.first_row = row;
            rows.out = out + row * ld + p * ES_LANES;
            k->streams(&rows);
            p += PACKED_STREAMS - 1;
            continue;
        }
        for (; passes > 0; passes--) {
            const int64_t n = (first_row + n_rows - row + passes - 1) / passes;
            rows.first_row = row;
            rows.out = out + row * ld + p * ES_LANES;
            k->packed[n - 1](&rows);
            row += n;
        }
    }
}

// Panels are expanded stretch by stretch.
typedef struct {
    int64_t panel;
    int64_t first_block;
    int64_t n_blocks;
    const uint8_t *blocks;
} stretch;

enum { NEAR_BYTES = 256 << 10 }; // of activations that stay in a core's second cache

// The index-th of `n_panels` panels' stretches: one panel after the other, as memory likes it; or,
// of rows that the second cache does not hold at full length, all panels' first stretches first.
static stretch stretch_at(const integer_kernels *k, const es_weight *weight, int64_t panel,
                          int64_t n_panels, int64_t n_rows, int64_t index) {
    const int64_t n_blocks = weight->n_cols / k->block_elements;
    const int64_t n_stretches = (n_blocks + k->chunk_blocks - 1) / k->chunk_blocks;
    const int by_panel = n_rows * weight->n_cols <= NEAR_BYTES;
    const int64_t p = by_panel ? index / n_stretches : index % n_panels;
    const int64_t first = (by_panel ? index % n_stretches : index / n_panels) * k->chunk_blocks;
    const int64_t left = n_blocks - first;
    return (stretch){
        .panel = p,
        .first_block = first,
        .n_blocks = left < k->chunk_blocks ? left : k->chunk_blocks,
        .blocks = weight->data + (panel + p) * weight->panel_bytes +
                  first * (weight->panel_bytes / n_blocks),
    };
}

// `n_rows`, a multiple of DOT_TILE, over expanded panels. Memory fetches the next stretch
// meanwhile.
static void tiled_rows(const integer_kernels *k, const es_weight *weight, int64_t panel,
                       int64_t n_panels, const es_activation *a, int64_t n_rows, float *out,
                       int64_t ld) {
    _Alignas(64) expansion expanded;
    const int64_t n_blocks = weight->n_cols / k->block_elements;
    const int64_t block_bytes = weight->panel_bytes / n_blocks;
    const int64_t n = n_panels * ((n_blocks + k->chunk_blocks - 1) / k->chunk_blocks);
    stretch next = stretch_at(k, weight, panel, n_panels, n_rows, 0);
    for (int64_t i = 0; i < n; i++) {
        const stretch now = next;
        k->expand(now.blocks, now.n_blocks, &expanded);
        if (i + 1 < n) {
            next = stretch_at(k, weight, panel, n_panels, n_rows, i + 1);
            for (int64_t at = 0; at < next.n_blocks * block_bytes; at += 64) {
                __builtin_prefetch(next.blocks + at, 0, 2);
            }
        }
        for (int64_t row = 0; row < n_rows; row += DOT_TILE) {
            const panel_rows rows = {
                .panel = (const uint8_t *)&expanded,
                .n_blocks = now.n_blocks,
                .a = a,
                .first_block = now.first_block,
                .first_row = row,
                .out = out + row * ld + now.panel * ES_LANES,
                .ld = ld,
            };
            k->expanded(&rows);
        }
    }
}

static void integer_matmul(const integer_kernels *k, const es_weight *weight, int64_t panel,
                           int64_t n_panels, const es_activation *a, int64_t n_rows, float *out,
                           int64_t ld) {
    const int64_t tiled = n_rows < k->expand_rows ? 0 : n_rows / DOT_TILE * DOT_TILE;
    if (tiled > 0) {
        tiled_rows(k, weight, panel, n_panels, a, tiled, out, ld);
    }
    packed_rows(k, weight, panel, n_panels, a, tiled, n_rows - tiled, out, ld);
}

// --- float types ---------------------------------------------------------------------------------

typedef void float_pass(const es_weight *weight, int64_t panel, const es_activation *a, int64_t row,
                        float *out, int64_t ld);

typedef struct {
    int32_t n_rows;
    int32_t n_panels;
    float_pass *panels; // n_panels at a time
    float_pass *panel;  // one
} float_kernel;

enum { FLOAT_KERNELS = 4, FLOAT_PANELS = 4 };

#define FLOAT_PASS(name, T, P, R)                                                                  \
    PASS name(const es_weight *weight, int64_t panel, const es_activation *a, int64_t row,         \
              float *out, int64_t ld) {                                                            \
        matmul_float(T, P, R, weight, panel, a, row, out, ld);                                     \
    }

// By rows, most first; fewer rows make up for it with panels.
#define FLOAT_TYPE(name, T)                                                                        \
    FLOAT_PASS(name##_tile, T, 1, DOT_FLOAT_TILE)                                                  \
    FLOAT_PASS(name##_4, T, 1, 4)                                                                  \
    FLOAT_PASS(name##_2, T, 1, 2)                                                                  \
    FLOAT_PASS(name##_2_by_2, T, 2, 2)                                                             \
    FLOAT_PASS(name##_1, T, 1, 1)                                                                  \
    FLOAT_PASS(name##_4_by_1, T, 4, 1)                                                             \
    static const float_kernel name[FLOAT_KERNELS] = {                                              \
        {DOT_FLOAT_TILE, 1, name##_tile, name##_tile},                                             \
        {4, 1, name##_4, name##_4},                                                                \
        {2, 2, name##_2_by_2, name##_2},                                                           \
        {1, 4, name##_4_by_1, name##_1},                                                           \
    };

FLOAT_TYPE(f32, ES_TYPE_F32)
FLOAT_TYPE(f16, ES_TYPE_F16)
FLOAT_TYPE(bf16, ES_TYPE_BF16)

// `n_rows` rows, from `row` on, times `n_panels` panels.
static void float_rows(const float_kernel *k, const es_weight *weight, int64_t panel,
                       int64_t n_panels, const es_activation *a, int64_t row, float *out,
                       int64_t ld) {
    int64_t p = 0;
    for (; p + k->n_panels <= n_panels; p += k->n_panels) {
        k->panels(weight, panel + p, a, row, out + p * ES_LANES, ld);
    }
    for (; p < n_panels; p++) {
        k->panel(weight, panel + p, a, row, out + p * ES_LANES, ld);
    }
}

static void float_matmul(const float_kernel *kernels, const es_weight *weight, int64_t panel,
                         int64_t n_panels, const es_activation *a, int64_t n_rows, float *out,
                         int64_t ld) {
    for (int64_t p = 0; p < n_panels; p += FLOAT_PANELS) {
        const int64_t n = n_panels - p < FLOAT_PANELS ? n_panels - p : FLOAT_PANELS;
        int64_t row = 0;
        for (const float_kernel *k = kernels; k < kernels + FLOAT_KERNELS; k++) {
            for (; n_rows - row >= k->n_rows; row += k->n_rows) {
                float_rows(k, weight, panel + p, n, a, row, out + p * ES_LANES, ld);
            }
        }
    }
}

// --- all types -----------------------------------------------------------------------------------

static void matmul(const es_weight *weight, int64_t panel, int64_t n_panels, const es_activation *a,
                   int64_t n_rows, float *out, int64_t ld) {
#define INTEGER_CASE(T, name)                                                                      \
    case T:                                                                                        \
        integer_matmul(&name, weight, panel, n_panels, a, n_rows, out, ld);                        \
        return;
#define FLOAT_CASE(T, name)                                                                        \
    case T:                                                                                        \
        float_matmul(name, weight, panel, n_panels, a, n_rows, out, ld);                           \
        return;
    switch (weight->type) {
        INTEGER_CASE(ES_TYPE_Q4_0, q4_0)
        INTEGER_CASE(ES_TYPE_Q4_1, q4_1)
        INTEGER_CASE(ES_TYPE_Q5_0, q5_0)
        INTEGER_CASE(ES_TYPE_Q5_1, q5_1)
        INTEGER_CASE(ES_TYPE_Q8_0, q8_0)
        INTEGER_CASE(ES_TYPE_IQ4_NL, iq4_nl)
        INTEGER_CASE(ES_TYPE_MXFP4, mxfp4)
        INTEGER_CASE(ES_TYPE_Q2_K, q2_k)
        INTEGER_CASE(ES_TYPE_Q3_K, q3_k)
        INTEGER_CASE(ES_TYPE_Q4_K, q4_k)
        INTEGER_CASE(ES_TYPE_Q5_K, q5_k)
        INTEGER_CASE(ES_TYPE_Q6_K, q6_k)
        INTEGER_CASE(ES_TYPE_IQ4_XS, iq4_xs)
        FLOAT_CASE(ES_TYPE_F32, f32)
        FLOAT_CASE(ES_TYPE_F16, f16)
        FLOAT_CASE(ES_TYPE_BF16, bf16)
    }
#undef INTEGER_CASE
#undef FLOAT_CASE
}

#endif
