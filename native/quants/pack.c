// GGUF blocks into panel blocks: bytes change places first, then bits inside whole lines.
#include "quants/pack.h"

#include "quants/bits.h"
#include "quants/blocks.h"
#include "quants/interleave.h"
#include "quants/scalar.h"

// One block of each row, from `at` on, to one panel block.
typedef void block_packer(lane_rows rows, size_t at, uint8_t *restrict out);

static inline void pack_each(block_packer *pack, size_t block_bytes, lane_rows rows,
                             int64_t n_blocks, uint8_t *panel) {
    for (size_t block = 0; block < (size_t)n_blocks; block++) {
        pack(rows, block * block_bytes, panel + block * block_bytes * ES_PANEL_LANES);
    }
}

// The es_pack_blocks of a block_packer.
#define PACK(type, block_bytes)                                                                    \
    void es_pack_##type(lane_rows rows, int64_t n_blocks, uint8_t *panel) {                        \
        pack_each(pack_##type, block_bytes, rows, n_blocks, panel);                                \
    }

// --- floats --------------------------------------------------------------------------------------

// Elements of a row that are read at a time: what they become stays in the first cache.
enum { ELEMENTS_AT_ONCE = 128 };

void es_pack_f32(lane_rows rows, int64_t n_blocks, uint8_t *panel) {
    const size_t n = (size_t)n_blocks, whole = n / 4 * 4;
    for (size_t first = 0; first < whole; first += ELEMENTS_AT_ONCE) {
        const size_t count = whole - first < ELEMENTS_AT_ONCE ? whole - first : ELEMENTS_AT_ONCE;
        interleave_words(rows, 4 * first, count, WORDS_LINE, panel + WORDS_LINE * first);
    }
    interleave_units(rows, 4 * whole, n - whole, 4, panel + WORDS_LINE * whole);
}

void es_pack_f16(lane_rows rows, int64_t n_blocks, uint8_t *panel) {
    const size_t n = (size_t)n_blocks, whole = n / 8 * 8;
    for (size_t first = 0; first < whole; first += ELEMENTS_AT_ONCE) {
        const size_t count = whole - first < ELEMENTS_AT_ONCE ? whole - first : ELEMENTS_AT_ONCE;
        interleave_halfs(rows, 2 * first, count, panel + HALFS_LINE * first);
    }
    interleave_units(rows, 2 * whole, n - whole, 2, panel + HALFS_LINE * whole);
}

// --- 32-wide -------------------------------------------------------------------------------------

static inline void pack_q4_0(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 1, 2, out);
    interleave_words(rows, at + 2, 4, WORDS_LINE, out + HALFS_LINE);
}
PACK(q4_0, sizeof(es_block_q4_0))

static inline void pack_q4_1(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 2, 2, out);
    interleave_words(rows, at + 4, 4, WORDS_LINE, out + 2 * HALFS_LINE);
}
PACK(q4_1, sizeof(es_block_q4_1))

// Bits a number of places apart, chosen by `mask`, change places.
static inline uint32_t swap_bits(uint32_t x, int apart, uint32_t mask) {
    const uint32_t differ = (x ^ x >> apart) & mask;
    return x ^ differ ^ differ << apart;
}

// Of each word, bit 4t + c to byte c bit t: a bit's number is rotated, by four exchanges of two
// of its five digits.
static inline void sort_fifth_bits(uint8_t *line) {
    for (size_t lane = 0; lane < ES_PANEL_LANES; lane++) {
        uint32_t x;
        memcpy(&x, line + 4 * lane, sizeof x);
        x = swap_bits(x, 14, 0x0000ccccu); // digits 16 and 2
        x = swap_bits(x, 7, 0x00aa00aau);  // 8 and 1
        x = swap_bits(x, 2, 0x0c0c0c0cu);  // 4 and 2
        x = swap_bits(x, 1, 0x22222222u);  // 2 and 1
        memcpy(line + 4 * lane, &x, sizeof x);
    }
}

static inline void pack_q5_0(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 1, 2, out);
    interleave_words(rows, at + 2, 5, WORDS_LINE, out + HALFS_LINE);
    sort_fifth_bits(out + HALFS_LINE);
}
PACK(q5_0, sizeof(es_block_q5_0))

static inline void pack_q5_1(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 2, 2, out);
    interleave_words(rows, at + 4, 5, WORDS_LINE, out + 2 * HALFS_LINE);
    sort_fifth_bits(out + 2 * HALFS_LINE);
}
PACK(q5_1, sizeof(es_block_q5_1))

static inline void pack_q8_0(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 1, 2, out);
    interleave_words(rows, at + 2, 8, WORDS_LINE, out + HALFS_LINE);
}
PACK(q8_0, sizeof(es_block_q8_0))

static inline void pack_mxfp4(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 1, 1, out);
    interleave_words(rows, at + 1, 4, WORDS_LINE, out + ES_PANEL_LANES);
}
PACK(mxfp4, sizeof(es_block_mxfp4))

// --- 256-wide ------------------------------------------------------------------------------------

static inline void pack_q2_k(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at + 80, 2, 2, out);
    interleave_halfs(rows, at, 8, out + 2 * HALFS_LINE);
    interleave_words(rows, at + 16, 16, WORDS_LINE, out + 10 * HALFS_LINE);
}
PACK(q2_k, sizeof(es_block_q2_k))

enum { NIBBLES_LOW = 0x0f0f0f0f };

// Two lines of bytes: the low nibbles of both, those of b above; and the high nibbles.
static inline void split_nibbles(const uint8_t *a, const uint8_t *b, uint8_t *low, uint8_t *high) {
    for (size_t i = 0; i < WORDS_LINE; i += 4) {
        uint32_t x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        const uint32_t lower = (x & NIBBLES_LOW) | (y & NIBBLES_LOW) << 4;
        const uint32_t upper = (x >> 4 & NIBBLES_LOW) | (y & ~(uint32_t)NIBBLES_LOW);
        memcpy(low + i, &lower, sizeof lower);
        memcpy(high + i, &upper, sizeof upper);
    }
}

// Words 2u and 2u + 1 of hmask are quads 2u and 2u + 1; their low nibbles are run 0's.
static inline void pack_q3_k(lane_rows rows, size_t at, uint8_t *restrict out) {
    const size_t run_bytes = 12 * WORDS_LINE;
    uint8_t third[8 * WORDS_LINE];
    interleave_units(rows, at + 108, 1, 2, out);
    interleave_units(rows, at + 96, 6, 2, out + HALFS_LINE);
    interleave_words(rows, at, 8, WORDS_LINE, third);
    uint8_t *runs = out + 7 * HALFS_LINE;
    for (size_t u = 0; u < 4; u++) {
        const uint8_t *quads = third + 2 * WORDS_LINE * u;
        split_nibbles(quads, quads + WORDS_LINE, runs + WORDS_LINE * u,
                      runs + run_bytes + WORDS_LINE * u);
    }
    for (size_t run = 0; run < 2; run++) {
        interleave_words(rows, at + 32 + 32 * run, 8, WORDS_LINE,
                         runs + run_bytes * run + 4 * WORDS_LINE);
    }
}
PACK(q3_k, sizeof(es_block_q3_k))

// d, dmin and the six-bit fields of Q4_K and Q5_K. The fields come as scales 0 .. 3 with the top
// bits of scales 4 .. 7 above them, the minimums likewise, and the low nibbles of 4 .. 7.
static inline void pack_scale_mins(lane_rows rows, size_t at, uint8_t *restrict out) {
    uint8_t halfs[8 * HALFS_LINE];
    interleave_halfs(rows, at, 8, halfs);
    memcpy(out, halfs, 2 * HALFS_LINE);
    split_nibbles(halfs + 2 * HALFS_LINE, halfs + 4 * HALFS_LINE, out + 2 * HALFS_LINE,
                  out + 6 * HALFS_LINE);
    memcpy(out + 4 * HALFS_LINE, halfs + 6 * HALFS_LINE, 2 * HALFS_LINE);
}

static inline void pack_q4_k(lane_rows rows, size_t at, uint8_t *restrict out) {
    pack_scale_mins(rows, at, out);
    interleave_words(rows, at + 16, 32, WORDS_LINE, out + 8 * HALFS_LINE);
}
PACK(q4_k, sizeof(es_block_q4_k))

// Byte by byte, bit g of line t changes places with bit t of line g: halves, quarters, eighths.
static inline void transpose_bits(uint8_t *lines) {
    static const uint32_t masks[3] = {0x0f0f0f0f, 0x33333333, 0x55555555};
    for (size_t round = 0; round < 3; round++) {
        const size_t apart = 4 >> round;
        for (size_t i = 0; i < 8; i++) {
            if ((i & apart) != 0) {
                continue;
            }
            uint8_t *a = lines + WORDS_LINE * i, *b = a + WORDS_LINE * apart;
            for (size_t at = 0; at < WORDS_LINE; at += 4) {
                uint32_t x, y;
                memcpy(&x, a + at, sizeof x);
                memcpy(&y, b + at, sizeof y);
                const uint32_t differ = (x >> apart ^ y) & masks[round];
                x ^= differ << apart;
                y ^= differ;
                memcpy(a + at, &x, sizeof x);
                memcpy(b + at, &y, sizeof y);
            }
        }
    }
}

// Fifth bits: byte 4t + c bit g of a block is group g's quad t; in the panel each group has a
// line, byte c bit t.
static inline void pack_q5_k(lane_rows rows, size_t at, uint8_t *restrict out) {
    uint8_t fifth[8 * WORDS_LINE];
    pack_scale_mins(rows, at, out);
    interleave_words(rows, at + 16, 8, WORDS_LINE, fifth);
    transpose_bits(fifth);
    uint8_t *pairs = out + 8 * HALFS_LINE;
    for (size_t pair = 0; pair < 4; pair++, pairs += 10 * WORDS_LINE) {
        memcpy(pairs, fifth + 2 * WORDS_LINE * pair, 2 * WORDS_LINE);
        interleave_words(rows, at + 48 + 32 * pair, 8, WORDS_LINE, pairs + 2 * WORDS_LINE);
    }
}
PACK(q5_k, sizeof(es_block_q5_k))

static inline void pack_q6_k(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at + 208, 1, 2, out);
    interleave_halfs(rows, at + 192, 8, out + HALFS_LINE);
    for (size_t run = 0; run < 2; run++) {
        uint8_t *quads = out + 9 * HALFS_LINE + 24 * WORDS_LINE * run;
        const size_t nibbles = at + 64 * run;
        interleave_words(rows, at + 128 + 32 * run, 8, 2 * WORDS_LINE, quads);
        interleave_words(rows, nibbles, 8, 2 * WORDS_LINE, quads + WORDS_LINE);
        interleave_words(rows, nibbles + 32, 8, WORDS_LINE, quads + 16 * WORDS_LINE);
    }
}
PACK(q6_k, sizeof(es_block_q6_k))

// Low nibbles of groups i and i + 4 in byte i of 4; of high bits, byte e has those of groups e,
// e + 2, e + 4, e + 6.
static void sort_iq4_scales(const uint8_t *block, uint8_t *sorted) {
    const uint32_t scales_h = read_u16(block + 2);
    memset(sorted, 0, 6);
    for (int group = 0; group < 8; group++) {
        const int scale = iq4_scale(block + 4, scales_h, group);
        sorted[group % 4] |= (uint8_t)((scale & 15) << (group / 4 * 4));
        sorted[4 + group % 2] |= (uint8_t)(scale >> 4 << (group / 2 * 2));
    }
}

static inline void pack_iq4_xs(lane_rows rows, size_t at, uint8_t *restrict out) {
    interleave_units(rows, at, 1, 2, out);
    for (size_t lane = 0; lane < ES_PANEL_LANES; lane++) {
        uint8_t sorted[6];
        sort_iq4_scales(rows[lane] + at, sorted);
        for (size_t u = 0; u < 3; u++) {
            memcpy(out + HALFS_LINE * (1 + u) + 2 * lane, sorted + 2 * u, 2);
        }
    }
    interleave_words(rows, at + 8, 32, WORDS_LINE, out + 4 * HALFS_LINE);
}
PACK(iq4_xs, sizeof(es_block_iq4_xs))
