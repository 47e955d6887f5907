// Lanes: a row's block with its bytes in the order in which a panel of P16x4 holds them.
//
// A panel block interleaves 16 lanes by units: unit u of all 16 lanes, then unit u + 1. Scales
// are units of 1 or 2 bytes, quads of 4. From front to back a lane holds:
//
//  F32 F16 BF16         one element
//  Q4_0 IQ4_NL          d, nibble quads
//  Q4_1                 d, m, nibble quads
//  Q5_0, Q5_1           d (m), fifth bits, nibble quads
//  Q8_0                 d, quads
//  MXFP4                e, nibble quads
//  Q2_K                 d, dmin, 16 bytes of scale and min, 2-bit quads
//  Q3_K                 d, 12 bytes of scales, then per 128: third bits, 2-bit quads
//  Q4_K                 d, dmin, 12 bytes of scales and mins, nibble quads
//  Q5_K                 d, dmin, the same, then per 64: fifth bits, nibble quads
//  Q6_K                 d, 16 bytes of scales, then per 128: (2-bit quad, nibble quad) x 8,
//                       8 nibble quads
//  IQ4_XS               d, 6 bytes of scales, nibble quads
//
// Nibble quad t holds elements 4t .. low, and high those that GGUF pairs with them: 16 on in
// 32-wide blocks and IQ4_XS, 32 on in Q4_K and Q5_K, 64 on in Q6_K. Bit t of a byte of fifth bits
// belongs to quad t of 32 elements. Third bits: unit u holds quads 2u (low nibble) and 2u + 1 of
// each 32 of a run of 128; bit s of a nibble is the s-th 32's. Six-bit scales and minimums are 8
// bytes of low nibbles and 4 (IQ4_XS: 4 and 2) of high bits, which kernels/generic/scales.h
// unpacks.
#ifndef ES_QUANTS_LANES_H
#define ES_QUANTS_LANES_H

#include <stddef.h>
#include <stdint.h>

#include "edgeserve.h"

enum {
    ES_PANEL_LANES = 16,
    ES_LANE_MAX = 210, // bytes of the largest block
};

typedef struct {
    uint8_t width; // 1, 2 or 4 bytes that stay together
    uint8_t count;
} es_lane_units;

// n_blocks GGUF blocks of each of 16 rows, to as many panel blocks.
typedef void es_pack_blocks(const uint8_t *const rows[ES_PANEL_LANES], int64_t n_blocks,
                            uint8_t *panel);

typedef struct {
    es_type type;
    int32_t block_elements;
    int32_t block_bytes;
    es_lane_units units[3]; // from front to back; the rest is zero
    es_pack_blocks *pack;
    // Back to GGUF's order; null where the lane's is the same.
    void (*from_lane)(const uint8_t *lane, uint8_t *block);
} es_lane_layout;

// NULL for an unknown type.
const es_lane_layout *es_lane_layout_of(es_type type);

// Lane `lane` of a panel block, as a GGUF block.
void es_panel_block_unpack(const es_lane_layout *layout, const uint8_t *panel_block, int lane,
                           uint8_t *block);

#endif
