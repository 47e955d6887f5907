// Makes mergers: of pairs with ranks (byte-pair encoding), or of tokens with scores
// (SentencePiece).
#include "text/merger.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t hash_of_pair(uint64_t seed, int32_t left, int32_t right) {
    const uint64_t both = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    return es_fold(both ^ seed, seed ^ 0x9E3779B97F4A7C15u);
}

static es_pair_slot *slot_of(const es_pairs *pairs, int32_t left, int32_t right, uint32_t *tag) {
    const uint64_t hash = hash_of_pair(pairs->seed, left, right);
    *tag = (uint32_t)(hash >> 32);
    for (uint64_t at = hash & pairs->mask;; at = (at + 1) & pairs->mask) {
        es_pair_slot *slot = &pairs->slots[at];
        if (slot->rank < 0 || (slot->tag == *tag && pairs->left[slot->rank] == left &&
                               pairs->right[slot->rank] == right)) {
            return slot;
        }
    }
}

int32_t es_pair_rank(const es_pairs *pairs, int32_t left, int32_t right) {
    uint32_t tag;
    return slot_of(pairs, left, right, &tag)->rank;
}

static es_status create(const es_tokens *tokens, const es_merger_options *options,
                        es_merger **out) {
    *out = NULL;
    if (tokens == NULL || options == NULL) {
        return ES_ERR_NULL;
    }
    for (int32_t byte = 0; byte < 256; byte++) {
        const int32_t id = options->byte_ids[byte];
        if (id < -1 || id >= tokens->texts.n) {
            return ES_ERR_RANGE;
        }
    }
    es_merger *merger = calloc(1, sizeof *merger);
    if (merger == NULL) {
        return ES_ERR_MEMORY;
    }
    merger->tokens = tokens;
    merger->options = *options;
    *out = merger;
    return ES_OK;
}

static es_status allocate_pairs(es_pairs *pairs, int32_t n, uint64_t seed) {
    uint64_t n_slots = 16;
    while (n_slots < (uint64_t)n * 2) {
        n_slots *= 2;
    }
    const size_t bytes = ((size_t)n + 1) * sizeof(int32_t);
    pairs->left = malloc(bytes);
    pairs->right = malloc(bytes);
    pairs->merged = malloc(bytes);
    pairs->slots = malloc((size_t)n_slots * sizeof *pairs->slots);
    pairs->mask = n_slots - 1;
    pairs->seed = seed;
    if (pairs->left == NULL || pairs->right == NULL || pairs->merged == NULL ||
        pairs->slots == NULL) {
        return ES_ERR_MEMORY;
    }
    memset(pairs->slots, 0xFF, (size_t)n_slots * sizeof *pairs->slots);
    return ES_OK;
}

// Whether token `id` is the two parts, one behind the other.
static int is_joined(const es_strings *texts, int32_t id, const uint8_t *left, size_t n_left,
                     const uint8_t *right, size_t n_right) {
    if (id < 0 || id >= texts->n || es_text_bytes(texts, id) != n_left + n_right) {
        return 0;
    }
    const uint8_t *text = es_text_at(texts, id);
    return memcmp(text, left, n_left) == 0 && memcmp(text + n_left, right, n_right) == 0;
}

// The token of both parts together. Merges mostly stand in the order of what they make, so the
// token of the merge before and the one after it are tried first.
static int32_t joined_id(const es_tokens *tokens, int32_t before, const uint8_t *left,
                         size_t n_left, const uint8_t *right, size_t n_right, uint8_t *room) {
    for (int32_t id = before; id <= before + 1; id++) {
        if (is_joined(&tokens->texts, id, left, n_left, right, n_right)) {
            return id;
        }
    }
    if (n_left + n_right > tokens->longest) {
        return -1;
    }
    memcpy(room, left, n_left);
    memcpy(room + n_left, right, n_right);
    return es_token_id(tokens, room, n_left + n_right);
}

// Reads every merge, "left right": the first part may itself begin with a space.
static es_status fill_pairs(es_merger *merger, const es_strings *merges, uint8_t *room,
                            int32_t *fault) {
    const es_tokens *tokens = merger->tokens;
    es_pairs *pairs = &merger->pairs;
    int32_t joined = -1;
    for (int32_t rank = 0; rank < merges->n; rank++) {
        *fault = rank;
        const uint8_t *left = es_text_at(merges, rank);
        const size_t n_bytes = es_text_bytes(merges, rank);
        const uint8_t *space = n_bytes < 2 ? NULL : memchr(left + 1, ' ', n_bytes - 1);
        if (space == NULL) {
            return ES_ERR_RANGE;
        }
        const size_t n_left = (size_t)(space - left), n_right = n_bytes - n_left - 1;
        const int32_t first = es_token_id(tokens, left, n_left);
        const int32_t second = es_token_id(tokens, space + 1, n_right);
        joined = joined_id(tokens, joined, left, n_left, space + 1, n_right, room);
        if (first < 0 || second < 0 || joined < 0) {
            return ES_ERR_RANGE;
        }
        pairs->left[rank] = first;
        pairs->right[rank] = second;
        pairs->merged[rank] = joined;
        uint32_t tag;
        es_pair_slot *slot = slot_of(pairs, first, second, &tag);
        if (slot->rank < 0) { // of two equal merges the first counts
            *slot = (es_pair_slot){tag, rank};
        }
    }
    *fault = -1;
    return ES_OK;
}

es_status es_merger_create_ranked(const es_tokens *tokens, const es_merger_options *options,
                                  const es_strings *merges, es_merger **out, int32_t *fault) {
    if (merges == NULL || merges->bytes == NULL || merges->starts == NULL || out == NULL ||
        fault == NULL) {
        return ES_ERR_NULL;
    }
    *out = NULL;
    *fault = -1;
    es_merger *merger;
    es_status status = create(tokens, options, &merger);
    if (status != ES_OK) {
        return status;
    }
    uint8_t *room = malloc(tokens->longest + 1);
    status = merges->n < 0  ? ES_ERR_LENGTH
             : room == NULL ? ES_ERR_MEMORY
                            : allocate_pairs(&merger->pairs, merges->n, tokens->seed);
    if (status == ES_OK) {
        status = fill_pairs(merger, merges, room, fault);
    }
    free(room);
    if (status != ES_OK) {
        es_merger_free(merger);
        return status;
    }
    *out = merger;
    return ES_OK;
}

// Orders as scores do, the highest first; -0 is 0.
static uint32_t order_of(float score) {
    const float sum = score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7FFFFFFFu;
}

static es_status fill_orders(uint32_t *orders, const float *scores, const uint8_t *is_merged,
                             int32_t n, int32_t *fault) {
    for (int32_t id = 0; id < n; id++) {
        if (!isfinite(scores[id])) {
            *fault = id;
            return ES_ERR_RANGE;
        }
        orders[id] = is_merged[id] ? order_of(scores[id]) : ES_NEVER;
    }
    return ES_OK;
}

es_status es_merger_create_scored(const es_tokens *tokens, const es_merger_options *options,
                                  const float *scores, const uint8_t *is_merged, es_merger **out,
                                  int32_t *fault) {
    if (scores == NULL || is_merged == NULL || out == NULL || fault == NULL) {
        return ES_ERR_NULL;
    }
    *out = NULL;
    *fault = -1;
    es_merger *merger;
    es_status status = create(tokens, options, &merger);
    if (status != ES_OK) {
        return status;
    }
    merger->orders = malloc(((size_t)tokens->texts.n + 1) * sizeof *merger->orders);
    status = merger->orders == NULL
                 ? ES_ERR_MEMORY
                 : fill_orders(merger->orders, scores, is_merged, tokens->texts.n, fault);
    if (status != ES_OK) {
        es_merger_free(merger);
        return status;
    }
    *out = merger;
    return ES_OK;
}

void es_merger_free(es_merger *merger) {
    if (merger != NULL) {
        free(merger->pairs.left);
        free(merger->pairs.right);
        free(merger->pairs.merged);
        free(merger->pairs.slots);
        free(merger->orders);
        free(merger);
    }
}
