// Scalars inside blocks, widened to float32 from their bits: exact for every value, subnormals
// and infinities included, whatever the processor's rounding or flush-to-zero mode.
#ifndef ES_QUANTS_SCALAR_H
#define ES_QUANTS_SCALAR_H

#include <stdint.h>
#include <string.h>

#include "quants/blocks.h"

static inline float float_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t read_u16(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static inline float half_to_float(es_half half) {
    const uint32_t bits = read_u16(half.bytes);
    const uint32_t sign = (bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 0x1fu;
    uint32_t mantissa = (bits & 0x3ffu) << 13;
    if (exponent == 0x1fu) { // infinity, or a NaN that keeps its payload
        return float_from_bits(sign | 0x7f800000u | mantissa);
    }
    if (exponent == 0) {
        if (mantissa == 0) {
            return float_from_bits(sign);
        }
        // Subnormal: float32 has room to normalise it.
        exponent = 1;
        while ((mantissa & 0x800000u) == 0) {
            mantissa <<= 1;
            exponent--; // may pass zero; the bias below brings it back
        }
        mantissa &= 0x7fffffu;
    }
    return float_from_bits(sign | (exponent + 127 - 15) << 23 | mantissa);
}

static inline float bfloat_to_float(const uint8_t *bytes) {
    return float_from_bits(read_u16(bytes) << 16);
}

// Half of the power of two that an E8M0 exponent stands for, 2^(e - 128): codebooks hold twice
// the value, so that they are integers. 255, NaN in the specification, is 2^127 here as in GGML.
static inline float e8m0_to_half_float(uint8_t e) {
    if (e < 2) { // below float32's normal range
        return float_from_bits(0x00200000u << e);
    }
    return float_from_bits((uint32_t)(e - 1) << 23);
}

#endif
