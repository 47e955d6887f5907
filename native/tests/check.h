// Counting of checks, and random numbers that are the same on every platform.
#ifndef ES_TESTS_CHECK_H
#define ES_TESTS_CHECK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int n_passed, n_failed;

// Counts one check, and says which one failed (the first twenty of them).
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (condition) {                                                                           \
            n_passed++;                                                                            \
        } else if (n_failed++ < 20) {                                                              \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
        }                                                                                          \
    } while (0)

static inline int report(void) {
    printf("%d passed, %d failed\n", n_passed, n_failed);
    return n_failed != 0;
}

typedef struct {
    uint64_t state;
} random_source;

// splitmix64
static inline uint64_t random_bits(random_source *source) {
    uint64_t z = (source->state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline int64_t random_below(random_source *source, int64_t n) {
    return (int64_t)(random_bits(source) >> 33) % n;
}

// Uniform in [-1, 1), a multiple of 2^-23.
static inline float random_unit(random_source *source) {
    return (float)((int64_t)(random_bits(source) >> 40) - (1 << 23)) * 0x1p-23f;
}

// What kinds of floats an input holds.
typedef enum {
    TAME,    // in [-8, 8)
    WIDE,    // any exponent, subnormals and zeros of both signs too
    SPECIAL, // tame, with now and then an infinity or a NaN
    N_KINDS,
} float_kind;

static inline float random_float(random_source *source, float_kind kind) {
    const uint32_t bits = (uint32_t)random_bits(source);
    if (kind == WIDE) {
        const uint32_t finite = bits % 16 == 0 ? bits & 0x807fffffu : bits;
        float x;
        memcpy(&x, &finite, sizeof x);
        return (finite & 0x7f800000u) == 0x7f800000u || bits % 31 == 0 ? 0.0f * -random_unit(source)
                                                                       : x;
    }
    if (kind == SPECIAL && bits % 64 == 0) {
        return bits % 128 == 0 ? NAN : bits % 256 == 64 ? INFINITY : -INFINITY;
    }
    return 8.0f * random_unit(source);
}

static inline void random_floats(random_source *source, float_kind kind, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        out[i] = random_float(source, kind);
    }
}

#endif
