// Products with what lies in memory once and the instruction itself spreads over all lanes:
// compilers load it into a register first, which costs an instruction and a register more. Apart,
// so that tests can emulate it.
#ifndef ES_KERNELS_AVX512_MEMORY_DOT_H
#define ES_KERNELS_AVX512_MEMORY_DOT_H

#include "kernels/avx512/simd.h"

typedef struct {
    int8_t at[4];
} byte_quad;

typedef struct {
    int16_t at[2];
} word_pair;

// Four unsigned bytes of each lane of w times the signed four at q, added to the lane's sum.
SIMD __m512i dot_quad(__m512i sum, __m512i w, const int8_t *q) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const byte_quad *)q));
    return sum;
}

// Two int16 of each lane of w times the two at q, added to the lane's sum.
SIMD __m512i dot_pair(__m512i sum, __m512i w, const int16_t *q) {
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const word_pair *)q));
    return sum;
}

#endif
