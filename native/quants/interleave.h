// Units of 16 rows side by side, in vectors that a compiler turns into its target's own: on x86
// the unpack instructions that every such processor has.
#ifndef ES_QUANTS_INTERLEAVE_H
#define ES_QUANTS_INTERLEAVE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "quants/lanes.h"

enum {
    HALFS_LINE = 2 * ES_PANEL_LANES, // bytes of one unit of all lanes
    WORDS_LINE = 4 * ES_PANEL_LANES,
};

typedef uint16_t halfs_8 __attribute__((vector_size(16)));
typedef uint32_t words_4 __attribute__((vector_size(16)));
typedef uint64_t pairs_2 __attribute__((vector_size(16)));

// Where 16 rows' bytes are. All functions below read from `at` on in each of them.
typedef const uint8_t *const lane_rows[ES_PANEL_LANES];

// `count` units of `width` bytes, any of both, one move a unit where the two are constants.
static inline void interleave_units(lane_rows rows, size_t at, size_t count, size_t width,
                                    uint8_t *restrict out) {
    for (size_t u = 0; u < count; u++, at += width, out += width * ES_PANEL_LANES) {
        for (size_t lane = 0; lane < ES_PANEL_LANES; lane++) {
            memcpy(out + width * lane, rows[lane] + at, width);
        }
    }
}

// Four words of four rows: line u gets each row's word u.
static inline void interleave_4x4(const uint8_t *const rows[4], size_t at, size_t line,
                                  uint8_t *restrict out) {
    words_4 a, b, c, d;
    memcpy(&a, rows[0] + at, sizeof a);
    memcpy(&b, rows[1] + at, sizeof b);
    memcpy(&c, rows[2] + at, sizeof c);
    memcpy(&d, rows[3] + at, sizeof d);
    const pairs_2 ab_low = (pairs_2)__builtin_shufflevector(a, b, 0, 4, 1, 5);
    const pairs_2 ab_high = (pairs_2)__builtin_shufflevector(a, b, 2, 6, 3, 7);
    const pairs_2 cd_low = (pairs_2)__builtin_shufflevector(c, d, 0, 4, 1, 5);
    const pairs_2 cd_high = (pairs_2)__builtin_shufflevector(c, d, 2, 6, 3, 7);
    const pairs_2 lines[4] = {
        __builtin_shufflevector(ab_low, cd_low, 0, 2),
        __builtin_shufflevector(ab_low, cd_low, 1, 3),
        __builtin_shufflevector(ab_high, cd_high, 0, 2),
        __builtin_shufflevector(ab_high, cd_high, 1, 3),
    };
    for (size_t u = 0; u < 4; u++) {
        memcpy(out + line * u, &lines[u], sizeof lines[u]);
    }
}

// `count` units of 4 bytes, at least 4, to lines that begin `line` bytes apart. Four rows at a
// time: rows that lie a power of two apart meet in few places of the first cache.
static inline void interleave_words(lane_rows rows, size_t at, size_t count, size_t line,
                                    uint8_t *restrict out) {
    for (size_t lane = 0; lane < ES_PANEL_LANES; lane += 4) {
        for (size_t u = 0; u < count; u += 4) {
            const size_t first = u + 4 <= count ? u : count - 4; // some of the last ones twice
            interleave_4x4(rows + lane, at + 4 * first, line, out + line * first + 4 * lane);
        }
    }
}

static inline halfs_8 low_halfs(halfs_8 a, halfs_8 b) {
    return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}

static inline halfs_8 high_halfs(halfs_8 a, halfs_8 b) {
    return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}

// Eight halfs of eight rows: three perfect shuffles of vectors i and i + 4 exchange the two.
static inline void interleave_8x8(const uint8_t *const rows[8], size_t at, uint8_t *restrict out) {
    halfs_8 from[8], to[8];
    for (size_t row = 0; row < 8; row++) {
        memcpy(&from[row], rows[row] + at, sizeof from[row]);
    }
    for (size_t round = 0; round < 3; round++) {
        for (size_t i = 0; i < 4; i++) {
            to[2 * i] = low_halfs(from[i], from[i + 4]);
            to[2 * i + 1] = high_halfs(from[i], from[i + 4]);
        }
        memcpy(from, to, sizeof from);
    }
    for (size_t u = 0; u < 8; u++) {
        memcpy(out + HALFS_LINE * u, &from[u], sizeof from[u]);
    }
}

// `count` units of 2 bytes, at least 8.
static inline void interleave_halfs(lane_rows rows, size_t at, size_t count,
                                    uint8_t *restrict out) {
    for (size_t lane = 0; lane < ES_PANEL_LANES; lane += 8) {
        for (size_t u = 0; u < count; u += 8) {
            const size_t first = u + 8 <= count ? u : count - 8;
            interleave_8x8(rows + lane, at + 2 * first, out + HALFS_LINE * first + 2 * lane);
        }
    }
}

#endif
