// The block formats of quantised weights, byte for byte as they lie in a GGUF file.
// Every member is a byte or an array of bytes: any address is aligned enough, nothing is padded.
#ifndef ES_QUANTS_BLOCKS_H
#define ES_QUANTS_BLOCKS_H

#include <assert.h>
#include <stdint.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "edgeserve runs on little-endian machines only: model files are little-endian"
#endif

enum {
    ES_BLOCK = 32,        // elements of a plain block
    ES_SUPERBLOCK = 256,  // elements of a K-quant's block
    ES_PACKED_SCALES = 12 // bytes that hold a super-block's 6-bit scales
};

// A float16, low byte first.
typedef struct {
    uint8_t bytes[2];
} es_half;

// x = d * (q - 8)
typedef struct {
    es_half d;
    uint8_t qs[ES_BLOCK / 2]; // element i low, element i + 16 high
} es_block_q4_0;

// x = d * q + m
typedef struct {
    es_half d;
    es_half m;
    uint8_t qs[ES_BLOCK / 2];
} es_block_q4_1;

// x = d * (q - 16)
typedef struct {
    es_half d;
    uint8_t qh[ES_BLOCK / 8]; // fifth bits, element i is bit i
    uint8_t qs[ES_BLOCK / 2];
} es_block_q5_0;

// x = d * q + m
typedef struct {
    es_half d;
    es_half m;
    uint8_t qh[ES_BLOCK / 8];
    uint8_t qs[ES_BLOCK / 2];
} es_block_q5_1;

// x = d * q
typedef struct {
    es_half d;
    int8_t qs[ES_BLOCK];
} es_block_q8_0;

// x = (d * scale) * q - (dmin * min), one scale and min per 16 elements
typedef struct {
    uint8_t scales[ES_SUPERBLOCK / 16]; // scale low, min high
    uint8_t qs[ES_SUPERBLOCK / 4];
    es_half d;
    es_half dmin;
} es_block_q2_k;

// x = (d * (scale - 32)) * (q - 4), one scale per 16 elements
typedef struct {
    uint8_t hmask[ES_SUPERBLOCK / 8]; // third bits
    uint8_t qs[ES_SUPERBLOCK / 4];    // low two bits
    uint8_t scales[ES_PACKED_SCALES];
    es_half d;
} es_block_q3_k;

// x = (d * scale) * q - (dmin * min), one scale and min per 32 elements
typedef struct {
    es_half d;
    es_half dmin;
    uint8_t scales[ES_PACKED_SCALES];
    uint8_t qs[ES_SUPERBLOCK / 2];
} es_block_q4_k;

// As es_block_q4_k
typedef struct {
    es_half d;
    es_half dmin;
    uint8_t scales[ES_PACKED_SCALES];
    uint8_t qh[ES_SUPERBLOCK / 8]; // fifth bits
    uint8_t qs[ES_SUPERBLOCK / 2];
} es_block_q5_k;

// x = (d * scale) * (q - 32), one scale per 16 elements
typedef struct {
    uint8_t ql[ES_SUPERBLOCK / 2]; // low four bits
    uint8_t qh[ES_SUPERBLOCK / 4]; // high two bits
    int8_t scales[ES_SUPERBLOCK / 16];
    es_half d;
} es_block_q6_k;

// x = d * iq4_values[q]
typedef struct {
    es_half d;
    uint8_t qs[ES_BLOCK / 2];
} es_block_iq4_nl;

// x = (d * (scale - 32)) * iq4_values[q], one scale per 32 elements
typedef struct {
    es_half d;
    uint8_t scales_h[2]; // high two bits of the eight scales
    uint8_t scales_l[ES_SUPERBLOCK / 64];
    uint8_t qs[ES_SUPERBLOCK / 2];
} es_block_iq4_xs;

// x = 2^(e - 127) * e2m1(q): OCP Microscaling Formats 1.0
typedef struct {
    uint8_t e;
    uint8_t qs[ES_BLOCK / 2];
} es_block_mxfp4;

static_assert(sizeof(es_half) == 2, "es_half");
static_assert(sizeof(es_block_q4_0) == 18, "es_block_q4_0");
static_assert(sizeof(es_block_q4_1) == 20, "es_block_q4_1");
static_assert(sizeof(es_block_q5_0) == 22, "es_block_q5_0");
static_assert(sizeof(es_block_q5_1) == 24, "es_block_q5_1");
static_assert(sizeof(es_block_q8_0) == 34, "es_block_q8_0");
static_assert(sizeof(es_block_q2_k) == 84, "es_block_q2_k");
static_assert(sizeof(es_block_q3_k) == 110, "es_block_q3_k");
static_assert(sizeof(es_block_q4_k) == 144, "es_block_q4_k");
static_assert(sizeof(es_block_q5_k) == 176, "es_block_q5_k");
static_assert(sizeof(es_block_q6_k) == 210, "es_block_q6_k");
static_assert(sizeof(es_block_iq4_nl) == 18, "es_block_iq4_nl");
static_assert(sizeof(es_block_iq4_xs) == 136, "es_block_iq4_xs");
static_assert(sizeof(es_block_mxfp4) == 17, "es_block_mxfp4");

#endif
