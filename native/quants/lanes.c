// Between GGUF blocks and the 16 interleaved lanes of a panel block. A lane is a permutation of
// its block's bits, so packing and unpacking are exact inverses.
#include "quants/lanes.h"

#include <string.h>

#include "quants/bits.h"
#include "quants/blocks.h"
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
static void fifth_bits_to_lane(const uint8_t *qh, uint8_t *lane) {
    uint64_t x = read_u16(qh) | (uint64_t)read_u16(qh + 2) << 32;
    x = (x | x << 8) & 0x00ff00ff00ff00ffu;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0fu;
    x = transpose_bits(x);
    memcpy(lane, &x, 4);
}

static void fifth_bits_from_lane(const uint8_t *lane, uint8_t *qh) {
    uint64_t x = 0;
    memcpy(&x, lane, 4);
    x = transpose_bits(x);
    for (int i = 0; i < 4; i++) {
        qh[i] = (uint8_t)((x >> (16 * i) & 15) | (x >> (16 * i + 8) & 15) << 4);
    }
}

// --- 32-wide -------------------------------------------------------------------------------------

static void q5_0_to_lane(const uint8_t *block, uint8_t *lane) {
    memcpy(lane, block, sizeof(es_block_q5_0));
    fifth_bits_to_lane(block + 2, lane + 2);
}

static void q5_0_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q5_0));
    fifth_bits_from_lane(lane + 2, block + 2);
}

static void q5_1_to_lane(const uint8_t *block, uint8_t *lane) {
    memcpy(lane, block, sizeof(es_block_q5_1));
    fifth_bits_to_lane(block + 4, lane + 4);
}

static void q5_1_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q5_1));
    fifth_bits_from_lane(lane + 4, block + 4);
}

// --- 256-wide ------------------------------------------------------------------------------------

static void q2_k_to_lane(const uint8_t *block, uint8_t *lane) {
    memcpy(lane, block + 80, 4);
    memcpy(lane + 4, block, 80);
}

static void q2_k_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block + 80, lane, 4);
    memcpy(block, lane + 4, 80);
}

// Bytes 8u .. 8u + 7 of hmask are quads 2u and 2u + 1; their low nibbles are run 0's.
static void q3_k_to_lane(const uint8_t *bytes, uint8_t *lane) {
    const es_block_q3_k *block = (const es_block_q3_k *)bytes;
    memcpy(lane, block->d.bytes, 2);
    memcpy(lane + 2, block->scales, 12);
    for (int run = 0; run < 2; run++) {
        uint8_t *third = lane + 14 + 48 * run;
        for (int i = 0; i < 16; i++) {
            const uint8_t *pair = block->hmask + i / 4 * 8 + i % 4;
            third[i] = (uint8_t)((pair[0] >> (4 * run) & 15) | (pair[4] >> (4 * run) & 15) << 4);
        }
        memcpy(third + 16, block->qs + 32 * run, 32);
    }
}

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

static void scale_min_to_lane(const uint8_t *packed, uint8_t *lane) {
    int scales[8], mins[8];
    for (int i = 0; i < 8; i++) {
        unpack_scale_min(packed, i, &scales[i], &mins[i]);
        lane[i] = (uint8_t)((scales[i] & 15) | (mins[i] & 15) << 4);
    }
    for (int i = 0; i < 4; i++) {
        lane[8 + i] = (uint8_t)(scales[i] >> 4 | scales[i + 4] >> 4 << 2 | mins[i] >> 4 << 4 |
                                mins[i + 4] >> 4 << 6);
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

static void q4_k_to_lane(const uint8_t *block, uint8_t *lane) {
    memcpy(lane, block, sizeof(es_block_q4_k));
    scale_min_to_lane(block + 4, lane + 4);
}

static void q4_k_from_lane(const uint8_t *lane, uint8_t *block) {
    memcpy(block, lane, sizeof(es_block_q4_k));
    scale_min_from_lane(lane + 4, block + 4);
}

// Fifth bits: byte 4t + c bit g of the block is group g's quad t; in the lane each group has 4
// bytes, byte c bit t. Pair p of groups is 8 bytes of them and 32 of nibbles.
static void q5_k_to_lane(const uint8_t *bytes, uint8_t *lane) {
    const es_block_q5_k *block = (const es_block_q5_k *)bytes;
    memcpy(lane, bytes, 4);
    scale_min_to_lane(block->scales, lane + 4);
    uint8_t *pairs = lane + 16;
    for (int c = 0; c < 4; c++) {
        uint64_t x = 0;
        for (int t = 0; t < 8; t++) {
            x |= (uint64_t)block->qh[4 * t + c] << (8 * t);
        }
        x = transpose_bits(x);
        for (int group = 0; group < 8; group++) {
            pairs[40 * (group / 2) + 4 * (group % 2) + c] = (uint8_t)(x >> (8 * group));
        }
    }
    for (int pair = 0; pair < 4; pair++) {
        memcpy(pairs + 40 * pair + 8, block->qs + 32 * pair, 32);
    }
}

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
static void q6_k_to_lane(const uint8_t *bytes, uint8_t *lane) {
    const es_block_q6_k *block = (const es_block_q6_k *)bytes;
    memcpy(lane, block->d.bytes, 2);
    memcpy(lane + 2, block->scales, 16);
    for (int run = 0; run < 2; run++) {
        uint8_t *quads = lane + 18 + 96 * run;
        for (int t = 0; t < 8; t++) {
            memcpy(quads + 8 * t, block->qh + 32 * run + 4 * t, 4);
            memcpy(quads + 8 * t + 4, block->ql + 64 * run + 4 * t, 4);
        }
        memcpy(quads + 64, block->ql + 64 * run + 32, 32);
    }
}

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
static void iq4_xs_to_lane(const uint8_t *bytes, uint8_t *lane) {
    const es_block_iq4_xs *block = (const es_block_iq4_xs *)bytes;
    const uint32_t scales_h = read_u16(block->scales_h);
    memcpy(lane, block->d.bytes, 2);
    memset(lane + 2, 0, 6);
    for (int group = 0; group < 8; group++) {
        const int scale = iq4_scale(block->scales_l, scales_h, group);
        lane[2 + group % 4] |= (uint8_t)((scale & 15) << (group / 4 * 4));
        lane[6 + group % 2] |= (uint8_t)(scale >> 4 << (group / 2 * 2));
    }
    memcpy(lane + 8, block->qs, sizeof block->qs);
}

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
    {ES_TYPE_F32, 1, 4, {{4, 1}}, NULL, NULL},
    {ES_TYPE_F16, 1, 2, {{2, 1}}, NULL, NULL},
    {ES_TYPE_BF16, 1, 2, {{2, 1}}, NULL, NULL},
    {ES_TYPE_Q4_0, 32, 18, {{2, 1}, {4, 4}}, NULL, NULL},
    {ES_TYPE_Q4_1, 32, 20, {{2, 2}, {4, 4}}, NULL, NULL},
    {ES_TYPE_Q5_0, 32, 22, {{2, 1}, {4, 5}}, q5_0_to_lane, q5_0_from_lane},
    {ES_TYPE_Q5_1, 32, 24, {{2, 2}, {4, 5}}, q5_1_to_lane, q5_1_from_lane},
    {ES_TYPE_Q8_0, 32, 34, {{2, 1}, {4, 8}}, NULL, NULL},
    {ES_TYPE_IQ4_NL, 32, 18, {{2, 1}, {4, 4}}, NULL, NULL},
    {ES_TYPE_MXFP4, 32, 17, {{1, 1}, {4, 4}}, NULL, NULL},
    {ES_TYPE_Q2_K, 256, 84, {{2, 10}, {4, 16}}, q2_k_to_lane, q2_k_from_lane},
    {ES_TYPE_Q3_K, 256, 110, {{2, 7}, {4, 24}}, q3_k_to_lane, q3_k_from_lane},
    {ES_TYPE_Q4_K, 256, 144, {{2, 8}, {4, 32}}, q4_k_to_lane, q4_k_from_lane},
    {ES_TYPE_Q5_K, 256, 176, {{2, 8}, {4, 40}}, q5_k_to_lane, q5_k_from_lane},
    {ES_TYPE_Q6_K, 256, 210, {{2, 9}, {4, 48}}, q6_k_to_lane, q6_k_from_lane},
    {ES_TYPE_IQ4_XS, 256, 136, {{2, 4}, {4, 32}}, iq4_xs_to_lane, iq4_xs_from_lane},
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

// `width` is a constant where this is called, so that every copy is one move.
static inline void interleave(const uint8_t *const lanes[ES_PANEL_LANES], size_t at, size_t count,
                              size_t width, uint8_t *restrict out) {
    for (size_t u = 0; u < count; u++, at += width, out += width * ES_PANEL_LANES) {
        for (size_t lane = 0; lane < ES_PANEL_LANES; lane++) {
            memcpy(out + width * lane, lanes[lane] + at, width);
        }
    }
}

void es_panel_block_pack(const es_lane_layout *layout, const uint8_t *const blocks[ES_PANEL_LANES],
                         uint8_t *panel_block) {
    uint8_t images[ES_PANEL_LANES][ES_LANE_MAX];
    const uint8_t *lanes[ES_PANEL_LANES];
    for (int lane = 0; lane < ES_PANEL_LANES; lane++) {
        lanes[lane] = blocks[lane];
        if (layout->to_lane != NULL) {
            layout->to_lane(blocks[lane], images[lane]);
            lanes[lane] = images[lane];
        }
    }
    size_t at = 0;
    for (int i = 0; i < 3; i++) {
        const size_t count = layout->units[i].count;
        uint8_t *out = panel_block + at * ES_PANEL_LANES;
        switch (layout->units[i].width) {
        case 1:
            interleave(lanes, at, count, 1, out);
            break;
        case 2:
            interleave(lanes, at, count, 2, out);
            break;
        case 4:
            interleave(lanes, at, count, 4, out);
            break;
        }
        at += layout->units[i].width * count;
    }
}

void es_panel_elements_pack(const es_lane_layout *layout, const uint8_t *const rows[ES_PANEL_LANES],
                            int64_t n_elements, uint8_t *panel) {
    if (layout->block_bytes == 2) {
        interleave(rows, 0, (size_t)n_elements, 2, panel);
    } else {
        interleave(rows, 0, (size_t)n_elements, 4, panel);
    }
}

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
