// Random numbers without state: hash(seed, position, stream, draw), after SplitMix64's finaliser
// (Steele, Lea, Flood 2014). The same numbers as edgeserve/runner/noise.py gives.
#ifndef ES_SAMPLING_NOISE_H
#define ES_SAMPLING_NOISE_H

#include <stdint.h>

#include "sampling/math64.h"

enum {
    ES_TOKEN_STREAM = 0, // draws are token ids
    ES_XTC_STREAM = 1,   // draw 0 is XTC's coin
};

static inline uint64_t es_mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static const uint64_t ES_GOLDEN = UINT64_C(0x9E3779B97F4A7C15);

// The key of all draws at one position.
static inline uint64_t es_noise_key(uint64_t seed, int64_t position, uint64_t stream) {
    const uint64_t parts[] = {seed, (uint64_t)position, stream};
    uint64_t state = ES_GOLDEN;
    for (int i = 0; i < 3; i++) {
        state = es_mix64(state + es_mix64(parts[i] + ES_GOLDEN));
    }
    return state;
}

// 52 random bits of draw number `draw`: one fewer than a double holds, so that half of the last
// place can be added and the result is never 1.
static inline uint64_t es_noise_bits(uint64_t key, uint64_t draw) {
    return es_mix64(key + draw * ES_GOLDEN) >> 12;
}

// Strictly between 0 and 1.
static inline double es_uniform(uint64_t bits) { return ((double)bits + 0.5) * 0x1p-52; }

static inline double es_gumbel(uint64_t bits) { return -es_log64(-es_log64(es_uniform(bits))); }

// No less than es_gumbel, and far cheaper: -log(-log(u)) <= -log(1 - u).
static inline double es_gumbel_bound(uint64_t bits) {
    const uint64_t rest = 2 * ((UINT64_C(1) << 52) - bits) - 1; // 1 - u, in units of 2^-53
    int exponent = 0;                                           // 1 - u > 2^-exponent
    for (uint64_t power = UINT64_C(1) << 53; power >= rest; power >>= 1) {
        exponent++;
    }
    return exponent * 0.6931471805599454;
}

#endif
