// Weights in memory: P16x4, one layout for every instruction set.
//
// A panel is 16 weight rows. Along k it is a run of blocks, each holding 16 rows x 32 or 256
// elements in exactly the bytes that GGUF spends on them. Inside a block, integer weights lie in
// 64-byte lines: a line holds 4 consecutive k of 16 rows, row r at bytes 4r .. 4r + 3 (nibble
// types: two such quads a line, low nibbles first). Lines stand in the order kernels read them.
// Float types: for each k, 16 rows side by side. Missing rows of the last panel are zero.
#ifndef ES_KERNELS_WEIGHT_H
#define ES_KERNELS_WEIGHT_H

#include <stdint.h>

#include "edgeserve.h"

// What a type's matmul reads: see es_activation.
typedef enum {
    ES_ACT_F32,
    ES_ACT_Q32,
    ES_ACT_Q256,
} es_activation_kind;

struct es_weight {
    es_type type;
    int64_t n_rows;
    int64_t n_cols;      // a whole number of the type's blocks
    int64_t n_panels;    // ceil(n_rows / 16)
    int64_t panel_bytes; // n_panels * panel_bytes in all
    uint8_t *data;       // 64-byte aligned, in huge pages where the system has them
};

// Of a type that es_weight_create accepts.
es_activation_kind es_weight_activation(es_type type);

// The weight_row of every kernel set.
void es_weight_row(const es_weight *weight, int64_t row, float *out);

#endif
