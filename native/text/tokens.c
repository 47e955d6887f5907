// Open addressing with a secret seed: a file cannot choose its tokens so that they all collide.
#include "text/tokens.h"

#include <stdlib.h>
#include <string.h>

enum {
    MIN_SLOTS = 16,
    MAX_TOKENS = 1 << 28,
    AT_ONCE = 32, // texts
};

static const uint64_t SECRET = 0x9E3779B97F4A7C15u; // 2^64 / golden ratio, for its mixed bits

uint64_t es_fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load8(const uint8_t *bytes) {
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static uint64_t load4(const uint8_t *bytes) {
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

// Up to seven bytes, by loads that overlap; the length goes into the hash besides.
static uint64_t load_tail(const uint8_t *bytes, size_t n) {
    if (n >= 4) {
        return load4(bytes) << 32 | load4(bytes + n - 4);
    }
    return n == 0 ? 0 : (uint64_t)bytes[0] << 16 | (uint64_t)bytes[n / 2] << 8 | bytes[n - 1];
}

// Wang Yi's wyhash, simplified: multiplications of 64 x 64 bits, folded.
static uint64_t hash_of(uint64_t seed, const uint8_t *text, size_t n_bytes) {
    uint64_t hash = es_fold(seed ^ n_bytes, SECRET);
    size_t left = n_bytes;
    for (; left > 8; left -= 8, text += 8) {
        hash = es_fold(load8(text) ^ seed, hash ^ SECRET);
    }
    const uint64_t tail = left == 8 ? load8(text) : load_tail(text, left);
    return es_fold(tail ^ seed, hash ^ SECRET);
}

static int is_text(const es_strings *texts, int32_t id, const uint8_t *text, size_t n_bytes) {
    return es_text_bytes(texts, id) == n_bytes && memcmp(es_text_at(texts, id), text, n_bytes) == 0;
}

// The slot that holds the text, or the free one where it would go.
static es_token_slot *slot_of(const es_tokens *tokens, uint64_t hash, const uint8_t *text,
                              size_t n_bytes) {
    const uint32_t tag = (uint32_t)(hash >> 32);
    for (uint64_t at = hash & tokens->mask;; at = (at + 1) & tokens->mask) {
        es_token_slot *slot = &tokens->slots[at];
        if (slot->id < 0 ||
            (slot->tag == tag && is_text(&tokens->texts, slot->id, text, n_bytes))) {
            return slot;
        }
    }
}

int32_t es_token_id(const es_tokens *tokens, const uint8_t *text, size_t n_bytes) {
    if (n_bytes > tokens->longest) {
        return -1;
    }
    return slot_of(tokens, hash_of(tokens->seed, text, n_bytes), text, n_bytes)->id;
}

// Slots are all over memory: they are on their way while the next texts are hashed.
static es_status fill(es_tokens *tokens, int32_t *duplicate) {
    const es_strings *texts = &tokens->texts;
    for (int32_t first = 0; first < texts->n; first += AT_ONCE) {
        const int32_t n = texts->n - first < AT_ONCE ? texts->n - first : AT_ONCE;
        uint64_t hashes[AT_ONCE];
        for (int32_t i = 0; i < n; i++) {
            const int32_t id = first + i;
            hashes[i] = hash_of(tokens->seed, es_text_at(texts, id), es_text_bytes(texts, id));
            __builtin_prefetch(&tokens->slots[hashes[i] & tokens->mask], 1);
        }
        for (int32_t i = 0; i < n; i++) {
            const int32_t id = first + i;
            const size_t n_bytes = es_text_bytes(texts, id);
            es_token_slot *slot = slot_of(tokens, hashes[i], es_text_at(texts, id), n_bytes);
            if (slot->id >= 0) {
                *duplicate = id;
                return ES_ERR_RANGE;
            }
            *slot = (es_token_slot){(uint32_t)(hashes[i] >> 32), id};
            tokens->longest = n_bytes > tokens->longest ? n_bytes : tokens->longest;
        }
    }
    return ES_OK;
}

es_status es_tokens_create(const es_strings *texts, uint64_t seed, es_tokens **out,
                           int32_t *duplicate) {
    if (texts == NULL || texts->bytes == NULL || texts->starts == NULL || out == NULL ||
        duplicate == NULL) {
        return ES_ERR_NULL;
    }
    *out = NULL;
    *duplicate = -1;
    if (texts->n < 0 || texts->n > MAX_TOKENS) {
        return ES_ERR_LENGTH;
    }
    uint64_t n_slots = MIN_SLOTS;
    while (n_slots < (uint64_t)texts->n * 2) {
        n_slots *= 2;
    }
    es_tokens *tokens = calloc(1, sizeof *tokens);
    es_token_slot *slots = malloc((size_t)n_slots * sizeof *slots);
    if (tokens == NULL || slots == NULL) {
        free(tokens);
        free(slots);
        return ES_ERR_MEMORY;
    }
    memset(slots, 0xFF, (size_t)n_slots * sizeof *slots);
    *tokens = (es_tokens){.texts = *texts, .slots = slots, .mask = n_slots - 1, .seed = seed};
    const es_status status = fill(tokens, duplicate);
    if (status != ES_OK) {
        es_tokens_free(tokens);
        return status;
    }
    *out = tokens;
    return ES_OK;
}

int32_t es_tokens_find(const es_tokens *tokens, const uint8_t *text, size_t n_bytes) {
    return tokens == NULL || text == NULL ? -1 : es_token_id(tokens, text, n_bytes);
}

void es_tokens_free(es_tokens *tokens) {
    if (tokens != NULL) {
        free(tokens->slots);
        free(tokens);
    }
}
