// A vocabulary as a hash table: the id of a text. Knows nothing of what tokens are for.
#ifndef ES_TEXT_TOKENS_H
#define ES_TEXT_TOKENS_H

#include "edgeserve.h"

typedef struct {
    uint32_t tag; // the hash's upper half
    int32_t id;   // -1: free
} es_token_slot;

struct es_tokens {
    es_strings texts; // borrowed
    es_token_slot *slots;
    uint64_t mask;
    uint64_t seed;
    size_t longest;
};

static inline const uint8_t *es_text_at(const es_strings *texts, int32_t i) {
    return texts->bytes + texts->starts[i];
}

// The next text's eight bytes of length lie between two texts.
static inline size_t es_text_bytes(const es_strings *texts, int32_t i) {
    return texts->starts[i + 1] - texts->starts[i] - 8;
}

uint64_t es_fold(uint64_t a, uint64_t b);

// The id of a text, or -1.
int32_t es_token_id(const es_tokens *tokens, const uint8_t *text, size_t n_bytes);

#endif
