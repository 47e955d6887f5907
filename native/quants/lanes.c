// Between GGUF blocks and the 16 interleaved lanes of a panel block. A lane is a permutation of
// its block's bits, so packing and unpacking are exact inverses.
#include "quants/lanes.h"

#include <string.h>

#include "quants/bits.h"
#include "quants/blocks.h"
#include "quants/pack.h"
#include "quants/scalar.h"

// --- bits ----------------------------------------------------------------------------------------

// Bit c of byte t changes places with bit t of byte c. (Warren, Hacker's Delight, 7-3)
static uint64_t transpose_bits(uint64_t x) {
    uint64_t swap = (x ^ x >> 7) & 0x00aa00aa00aa00aau;
    x ^= swap ^ swap << 7;
    swap = (x ^ x >> 14) & 0x0000cccc0000ccccu;
    x ^= swap ^ swap << 14;
    swap = (x ^ x >> 28) & 0x00000000f0f0f0f0u;
    return x ^ swap ^ swap << 28;
}

// 32 bits, element 4t + c at bit 4t + c, to byte c bit t.
static void fifth_bits_from_lane(const uint8_t *lane, uint8_t *qh) {
    uint64_t x = 0;
    memcpy(&x, lane, 4);
    x = transpose_bits(x);
    for (int i = 0; i < 4; i++) {
        qh[i] = (uint8_t)((x >> (16 * i) & 15) | (x >> (16 * i + 8) & 15) << 4);
    }
}

// --- 32-wide -------------------------------------------------------------------------------------

static void q5_0_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q5_0));
    fifth_bits_from_lane(lane + 2, block + 2);
}

static void q5_1_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q5_1));
    fifth_bits_from_lane(lane + 4, block + 4);
}

// --- 256-wide ------------------------------------------------------------------------------------

static void q2_k_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block + 80, lane, 4);
    memcpy(block, lane + 4, 80);
}

// Bytes 8u .. 8u + 7 of hmask are quads 2u and 2u + 1; their low nibbles are run 0's.
static void q3_k_from_lane(const uint8_t *lane, uint8_t *bytes) {
    es_block_q3_k *block = (es_block_q3_k *)bytes;
    memcpy(block->d.bytes, lane, 2);
    memcpy(block->scales, lane + 2, 12);
    for (int run = 0; run < 2; run++) {
        memcpy(block->qs + 32 * run, lane + 14 + 48 * run + 16, 32);
    }
    for (int i = 0; i < 16; i++) {
        uint8_t *pair = block->hmask + i / 4 * 8 + i % 4;
        const uint8_t first = lane[14 + i], second = lane[14 + 48 + i];
        pair[0] = (uint8_t)((first & 15) | (second & 15) << 4);
        pair[4] = (uint8_t)(first >> 4 | (second >> 4) << 4);
    }
}

static void scale_min_from_lane(const uint8_t *lane, uint8_t *packed) {
    memset(packed, 0, ES_PACKED_SCALES);
    // The upper four first: the lower four's bytes hold their top bits, and keep them.
    for (int step = 0; step < 8; step++) {
        const int i = (step + 4) % 8;
        const int high = lane[8 + i % 4] >> (i / 4 * 2);
        pack_scale_min(packed, i, (lane[i] & 15) | (high & 3) << 4,
                       lane[i] >> 4 | (high >> 4 & 3) << 4);
    }
}

static void q4_k_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q4_k));
    scale_min_from_lane(lane + 4, block + 4);
}

// Fifth bits: byte 4t + c bit g of the block is group g's quad t; in the lane each group has 4
// bytes, byte c bit t. Pair p of groups is 8 bytes of them and 32 of nibbles.
static void q5_k_from_lane(const uint8_t *lane, uint8_t *bytes) {
    es_block_q5_k *block = (es_block_q5_k *)bytes;
    memcpy(bytes, lane, 4);
    scale_min_from_lane(lane + 4, block->scales);
    const uint8_t *pairs = lane + 16;
    for (int c = 0; c < 4; c++) {
        uint64_t x = 0;
        for (int group = 0; group < 8; group++) {
            x |= (uint64_t)pairs[40 * (group / 2) + 4 * (group % 2) + c] << (8 * group);
        }
        x = transpose_bits(x);
        for (int t = 0; t < 8; t++) {
            block->qh[4 * t + c] = (uint8_t)(x >> (8 * t));
        }
    }
    for (int pair = 0; pair < 4; pair++) {
        memcpy(block->qs + 32 * pair, pairs + 40 * pair + 8, 32);
    }
}

// Of a run of 128: high-bit quad t, low-nibble quad t, and last low-nibble quads 8 .. 15.
static void q6_k_from_lane(const uint8_t *lane, uint8_t *bytes) {
    es_block_q6_k *block = (es_block_q6_k *)bytes;
    memcpy(block->d.bytes, lane, 2);
    memcpy(block->scales, lane + 2, 16);
    for (int run = 0; run < 2; run++) {
        const uint8_t *quads = lane + 18 + 96 * run;
        for (int t = 0; t < 8; t++) {
            memcpy(block->qh + 32 * run + 4 * t, quads + 8 * t, 4);
            memcpy(block->ql + 64 * run + 4 * t, quads + 8 * t + 4, 4);
        }
        memcpy(block->ql + 64 * run + 32, quads + 64, 32);
    }
}

// Low nibbles of groups i and i + 4 in byte i of 4; of high bits, byte e has those of groups e,
// e + 2, e + 4, e + 6.
static void iq4_xs_from_lane(const uint8_t *lane, uint8_t *bytes) {
    es_block_iq4_xs *block = (es_block_iq4_xs *)bytes;
    memcpy(block->d.bytes, lane, 2);
    memset(block->scales_l, 0, sizeof block->scales_l);
    memset(block->scales_h, 0, sizeof block->scales_h);
    for (int group = 0; group < 8; group++) {
        const int low = lane[2 + group % 4] >> (group / 4 * 4) & 15;
        const int high = lane[6 + group % 2] >> (group / 2 * 2) & 3;
        block->scales_l[group / 2] |= (uint8_t)(low << (group % 2 * 4));
        block->scales_h[group / 4] |= (uint8_t)(high << (group % 4 * 2));
    }
    memcpy(block->qs, lane + 8, sizeof block->qs);
}

// --- the types -----------------------------------------------------------------------------------

static const es_lane_layout layouts[] = {
    {ES_TYPE_F32, 1, 4, {{4, 1}}, es_pack_f32, NULL},
    {ES_TYPE_F16, 1, 2, {{2, 1}}, es_pack_f16, NULL},
    {ES_TYPE_BF16, 1, 2, {{2, 1}}, es_pack_f16, NULL},
    {ES_TYPE_Q4_0, 32, 18, {{2, 1}, {4, 4}}, es_pack_q4_0, NULL},
    {ES_TYPE_Q4_1, 32, 20, {{2, 2}, {4, 4}}, es_pack_q4_1, NULL},
    {ES_TYPE_Q5_0, 32, 22, {{2, 1}, {4, 5}}, es_pack_q5_0, q5_0_from_lane},
    {ES_TYPE_Q5_1, 32, 24, {{2, 2}, {4, 5}}, es_pack_q5_1, q5_1_from_lane},
    {ES_TYPE_Q8_0, 32, 34, {{2, 1}, {4, 8}}, es_pack_q8_0, NULL},
    {ES_TYPE_IQ4_NL, 32, 18, {{2, 1}, {4, 4}}, es_pack_q4_0, NULL},
    {ES_TYPE_MXFP4, 32, 17, {{1, 1}, {4, 4}}, es_pack_mxfp4, NULL},
    {ES_TYPE_Q2_K, 256, 84, {{2, 10}, {4, 16}}, es_pack_q2_k, q2_k_from_lane},
    {ES_TYPE_Q3_K, 256, 110, {{2, 7}, {4, 24}}, es_pack_q3_k, q3_k_from_lane},
    {ES_TYPE_Q4_K, 256, 144, {{2, 8}, {4, 32}}, es_pack_q4_k, q4_k_from_lane},
    {ES_TYPE_Q5_K, 256, 176, {{2, 8}, {4, 40}}, es_pack_q5_k, q5_k_from_lane},
    {ES_TYPE_Q6_K, 256, 210, {{2, 9}, {4, 48}}, es_pack_q6_k, q6_k_from_lane},
    {ES_TYPE_IQ4_XS, 256, 136, {{2, 4}, {4, 32}}, es_pack_iq4_xs, iq4_xs_from_lane},
};

const es_lane_layout *es_lane_layout_of(es_type type) {
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (layouts[i].type == type) {
            return &layouts[i];
        }
    }
    return NULL;
}

// --- interleaving --------------------------------------------------------------------------------

void es_panel_block_unpack(const es_lane_layout *layout, const uint8_t *panel_block, int lane,
                           uint8_t *block) {
    uint8_t image[ES_LANE_MAX];
    uint8_t *out = layout->from_lane != NULL ? image : block;
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        const size_t width = layout->units[i].width;
        for (size_t u = 0; u < layout->units[i].count; u++, at += width) {
            const uint8_t *unit = panel_block + at * ES_PANEL_LANES + width * (size_t)lane;
            for (size_t byte = 0; byte < width; byte++) {
                out[at + byte] = unit[byte];
            }
        }
    }
    if (layout->from_lane != NULL) {
        layout->from_lane(image, block);
    }
}
