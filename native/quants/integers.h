// A GGUF block as what the numerics contract computes with: integers and their scales.
#ifndef ES_QUANTS_INTEGERS_H
#define ES_QUANTS_INTEGERS_H

#include <stdint.h>

#include "edgeserve.h"
#include "quants/blocks.h"

// Element i is d * scale[i / 16] * w[i] - dmin * min[i / 16] (256-wide), or d * w[i] + m.
typedef struct {
    float d;
    float m; // or dmin; 0 where the type has none
    int16_t w[ES_SUPERBLOCK];
    int16_t scale[ES_SUPERBLOCK / 16]; // 256-wide types only, as is min
    int16_t min[ES_SUPERBLOCK / 16];
} es_block_integers;

void es_block_integers_read(es_type type, const void *block, es_block_integers *out);

#endif
