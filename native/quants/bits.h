// The bit fields inside blocks: which bits of which byte belong to an element or a group.
#ifndef ES_QUANTS_BITS_H
#define ES_QUANTS_BITS_H

#include <stdint.h>

// Two bits of every element in a run of 128: byte i of 32 holds elements i, i+32, i+64, i+96.
static inline int two_bits(const uint8_t *qs, int element) {
    const int run = element / 128;
    const int shift = 2 * (element % 128 / 32);
    return qs[32 * run + element % 32] >> shift & 3;
}

// Q3_K's scale of `group` of 16, before 32 is taken off: its low four bits are a nibble of the
// first eight bytes (low nibbles first), its high two are in the last four.
static inline int q3_scale(const uint8_t *packed, int group) {
    const int low = packed[group % 8] >> (group / 8 * 4) & 15;
    const int high = packed[8 + group % 4] >> (group / 4 * 2) & 3;
    return low | high << 4;
}

// Q4_K's and Q5_K's scale and minimum of `group` of 8, six bits each. Four of each lie in the low
// six bits of bytes 0-3 and 4-7; the other four have a nibble in bytes 8-11 and their top bits
// above the first four.
static inline void unpack_scale_min(const uint8_t *packed, int group, int *scale, int *min) {
    if (group < 4) {
        *scale = packed[group] & 63;
        *min = packed[group + 4] & 63;
        return;
    }
    *scale = (packed[group + 4] & 15) | packed[group - 4] >> 6 << 4;
    *min = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
}

// The inverse.
static inline void pack_scale_min(uint8_t *packed, int group, int scale, int min) {
    if (group < 4) {
        packed[group] = (uint8_t)((packed[group] & 0xc0) | scale);
        packed[group + 4] = (uint8_t)((packed[group + 4] & 0xc0) | min);
        return;
    }
    packed[group + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
    packed[group - 4] = (uint8_t)((packed[group - 4] & 63) | scale >> 4 << 6);
    packed[group] = (uint8_t)((packed[group] & 63) | min >> 4 << 6);
}

// Q4_K's and Q5_K's nibbles: byte i of 32 holds element i of group 2k low, of group 2k + 1 high.
static inline int group_nibble(const uint8_t *qs, int group, int i) {
    return qs[32 * (group / 2) + i] >> (group % 2 * 4) & 15;
}

// Q6_K's low four bits: in a run of 128, byte i of 64 holds element i low, i + 64 high.
static inline int run_nibble(const uint8_t *ql, int element) {
    const int run = element / 128;
    return ql[64 * run + element % 64] >> (element % 128 / 64 * 4) & 15;
}

// Bit i of a little-endian string of bits.
static inline int bit_of(const uint8_t *bytes, int i) { return bytes[i / 8] >> (i % 8) & 1; }

// IQ4_XS's scale of `group` of 8, before 32 is taken off.
static inline int iq4_scale(const uint8_t *scales_l, uint32_t scales_h, int group) {
    const int low = scales_l[group / 2] >> (group % 2 * 4) & 15;
    return low | (int)(scales_h >> (2 * group) & 3) << 4;
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

// Twice the FP4 (E2M1) values. The eighth is minus zero in the specification; GGML has plus zero.
static const int8_t e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

#endif
