// What the parts of attention share: some queries that go through a chunk of keys and values
// together, in tiles whose sums fit into registers.
#ifndef ES_KERNELS_GENERIC_ATTENTION_TILE_H
#define ES_KERNELS_GENERIC_ATTENTION_TILE_H

#include <stdint.h>

#include "kernels/generic/unroll.h"
#include "kernels/kernels.h"

enum {
    // Sums that stay in registers, beside what they are made of.
    ACCUMULATORS = SIMD_REGISTERS >= 32 ? 16 : SIMD_REGISTERS * 3 / 4,
    // Queries that one pass over a line of keys or values serves.
    TILE = SIMD_REGISTERS >= 32 ? 8
    : SIMD_REGISTERS >= 8       ? 6
                                : 1,
    // Queries whose tiles take turns on a block, which stays in the nearest cache meanwhile.
    TOGETHER = 4 * TILE,
    // Of queries: no power of two, or they would drive each other out of the cache.
    QUERY_STRIDE = ES_HEAD_MAX + ES_LANES,
};

typedef struct {
    const es_attention_cache *cache;
    es_attention_partial *partials;
    int32_t start; // the chunk's first position
    int32_t last;  // one past the last position that any of them sees, in later chunks too
    int32_t n;
    int32_t tiles[TOGETHER / TILE + 1]; // the first query of each, and n
    int32_t first[TOGETHER]; // what each sees of the chunk: first <= position < end, or nothing
    int32_t end[TOGETHER];
    _Alignas(64) float q[TOGETHER][QUERY_STRIDE];
    _Alignas(64) float scores[TOGETHER][ES_KV_CHUNK]; // later weights
    _Alignas(64) float even[TILE][ES_KV_BLOCK];       // sums that wait for those over odd elements
} query_group;

static inline int32_t least_of(const int32_t *x, int32_t n) {
    int32_t least = x[0];
    for (int32_t i = 1; i < n; i++) {
        least = x[i] < least ? x[i] : least;
    }
    return least;
}

static inline int32_t most_of(const int32_t *x, int32_t n) {
    int32_t most = x[0];
    for (int32_t i = 1; i < n; i++) {
        most = x[i] > most ? x[i] : most;
    }
    return most;
}

// Even shares: 4 + 3 are faster than 6 + 1.
static inline void share_out(query_group *group) {
    const int32_t n_tiles = (group->n + TILE - 1) / TILE;
    for (int32_t i = 0; i <= n_tiles; i++) {
        group->tiles[i] = group->n * i / n_tiles;
    }
}

// Calls f with the size of a tile, 1 to TILE, as a constant.
#define WITH_TILE(n, f, ...)                                                                       \
    switch (n) {                                                                                   \
        TILE_CASE(1, f, __VA_ARGS__);                                                              \
        TILE_CASE(2, f, __VA_ARGS__);                                                              \
        TILE_CASE(3, f, __VA_ARGS__);                                                              \
        TILE_CASE(4, f, __VA_ARGS__);                                                              \
        TILE_CASE(5, f, __VA_ARGS__);                                                              \
        TILE_CASE(6, f, __VA_ARGS__);                                                              \
        TILE_CASE(7, f, __VA_ARGS__);                                                              \
        TILE_CASE(8, f, __VA_ARGS__);                                                              \
    }
#define TILE_CASE(count, f, ...)                                                                   \
    case count:                                                                                    \
        if (count <= TILE) {                                                                       \
            f(count, __VA_ARGS__);                                                                 \
        }                                                                                          \
        break

#endif
