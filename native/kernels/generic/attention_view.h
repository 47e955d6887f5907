// What the parts of attention share: one chunk of a span, and how many query heads go at once.
#ifndef ES_KERNELS_GENERIC_ATTENTION_VIEW_H
#define ES_KERNELS_GENERIC_ATTENTION_VIEW_H

#include <stdint.h>

#include "kernels/kernels.h"

enum {
    // Query heads that one pass over a block serves.
    HEADS = SIMD_REGISTERS >= 32 ? 4
    : SIMD_REGISTERS >= 8        ? 3
                                 : 1,
    ACCUMULATORS = SIMD_REGISTERS * 3 / 4,
    GROUP = 8, // query heads whose scores are held at a time
};

// One chunk's part of a span, and the scores, then weights, of a group of queries.
typedef struct {
    const es_attention_span *span;
    int32_t start; // the chunk's first position
    int32_t first; // its visible positions: start <= first < end
    int32_t end;
    float scores[GROUP][ES_KV_CHUNK];
} chunk_view;

// How many of n heads to serve at once: even shares.
static int heads_at_once(int n) {
    const int n_passes = (n + HEADS - 1) / HEADS;
    return (n + n_passes - 1) / n_passes;
}

// Calls f with n_heads, 1 .. HEADS, as a constant.
#define WITH_HEADS(n_heads, f, ...)                                                                \
    do {                                                                                           \
        if (HEADS == 1 || (n_heads) == 1) {                                                        \
            f(1, __VA_ARGS__);                                                                     \
        } else if ((n_heads) == 2) {                                                               \
            f(2, __VA_ARGS__);                                                                     \
        } else if (HEADS == 3 || (n_heads) == 3) {                                                 \
            f(3, __VA_ARGS__);                                                                     \
        } else {                                                                                   \
            f(4, __VA_ARGS__);                                                                     \
        }                                                                                          \
    } while (0)

typedef struct {
    const uint8_t *keys;
    const uint8_t *ahead_keys;   // what memory should fetch meanwhile,
    const uint8_t *ahead_values; // as many lines of each as the keys have
} key_block;

#endif
