// What a merger knows of its vocabulary. Built by ranked.c or scored.c, at work in merge.c.
#ifndef ES_TEXT_MERGER_H
#define ES_TEXT_MERGER_H

#include "text/tokens.h"

// An order of pairs: the lowest merges first, this one never.
#define ES_NEVER UINT32_MAX

typedef struct {
    uint32_t tag;
    int32_t rank; // -1: free
} es_pair_slot;

// Pairs of ids by rank, and a hash table over them.
typedef struct {
    int32_t *left;
    int32_t *right;
    int32_t *merged;
    es_pair_slot *slots;
    uint64_t mask;
    uint64_t seed;
} es_pairs;

struct es_merger {
    const es_tokens *tokens; // borrowed
    es_merger_options options;
    es_pairs pairs;   // of a ranked merger
    uint32_t *orders; // (n_tokens,) of a scored one: what a token comes out of a merge with
};

// The rank of a pair, or -1.
int32_t es_pair_rank(const es_pairs *pairs, int32_t left, int32_t right);

#endif
