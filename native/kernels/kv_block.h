// Blocks of the KV cache: 16 tokens' keys, or values, of one KV head.
//
// f16: keys (size, 16), lanes are tokens; values (16, size).
// q8_0, q4_0: elements in groups of 32, the last one filled up. First f16 scales (groups, 16); then
//   q8_0  keys int8 (groups, 32, 16), values int8 (groups, 16, 32)
//   q4_0  of each group 16 lines of 16 bytes, two elements a byte, each plus 8:
//         keys (16, 16 tokens), elements 2i and 2i + 1; values (16 tokens, 16), i and i + 16.
// What a token puts into a block depends on no other token, and shares no byte with one.
#ifndef ES_KERNELS_KV_BLOCK_H
#define ES_KERNELS_KV_BLOCK_H

#include <stdint.h>

#include "edgeserve.h"

enum {
    ES_KV_BLOCK = 16, // tokens
    ES_KV_GROUP = 32, // elements that share a scale
};

static inline int64_t es_kv_groups(int64_t size) { return (size + ES_KV_GROUP - 1) / ES_KV_GROUP; }

// The scales of a block of an integer type.
static inline int64_t es_kv_scale_bytes(int64_t size) {
    return es_kv_groups(size) * ES_KV_BLOCK * (int64_t)sizeof(uint16_t);
}

// What lies after its scales, of one group.
static inline int64_t es_kv_group_bytes(es_kv_type type) {
    return ES_KV_GROUP * ES_KV_BLOCK / (type == ES_KV_Q4_0 ? 2 : 1);
}

static inline int64_t es_kv_block_bytes(es_kv_type type, int64_t size) {
    if (type == ES_KV_F16) {
        return size * ES_KV_BLOCK * (int64_t)sizeof(uint16_t);
    }
    return es_kv_scale_bytes(size) + es_kv_groups(size) * es_kv_group_bytes(type);
}

#endif
