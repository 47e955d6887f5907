// What differs between quant types: where a panel block's lines are, and how bits become weights.
// `type` is a constant wherever these are inlined. quants/lanes.h describes the layout.
#ifndef ES_KERNELS_GENERIC_LINES_H
#define ES_KERNELS_GENERIC_LINES_H

#include "edgeserve.h"
#include "quants/bits.h"

// A block is a header and then runs of groups of lines of weights; 4 lines are 16 elements.
// 32-wide blocks are one run of one group. Every 16 lanes' byte of the lane is 16 bytes here.
typedef struct {
    int block_bytes;
    int runs_at; // offset of the first run
    int n_runs;
    int run_bytes;
    int run_groups;
    int group_lines;
    int largest; // the largest weight; 0 where they are signed
    int offset;  // in all weights, to be taken off the products
    int has_min;
} format;

// Twice the E2M1 values, plus 12: unsigned products are cheaper.
static const int8_t e2m1_table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

SIMD format format_of(es_type type) {
    switch (type) {
    case ES_TYPE_Q4_0:
        return (format){16 * 18, 16 * 2, 1, 16 * 16, 1, 8, 15, 8, 0};
    case ES_TYPE_Q4_1:
        return (format){16 * 20, 16 * 4, 1, 16 * 16, 1, 8, 15, 0, 1};
    case ES_TYPE_Q5_0:
        return (format){16 * 22, 16 * 2, 1, 16 * 20, 1, 8, 31, 16, 0};
    case ES_TYPE_Q5_1:
        return (format){16 * 24, 16 * 4, 1, 16 * 20, 1, 8, 31, 0, 1};
    case ES_TYPE_Q8_0:
        return (format){16 * 34, 16 * 2, 1, 16 * 32, 1, 8, 0, DOT_SIGNED_BIAS, 0};
    case ES_TYPE_IQ4_NL:
        return (format){16 * 18, 16 * 2, 1, 16 * 16, 1, 8, 0, DOT_SIGNED_BIAS, 0};
    case ES_TYPE_MXFP4:
        return (format){16 * 17, 16 * 1, 1, 16 * 16, 1, 8, 24, 12, 0};
    case ES_TYPE_Q2_K:
        return (format){16 * 84, 16 * 20, 2, 16 * 32, 8, 4, 3, 0, 1};
    case ES_TYPE_Q3_K:
        return (format){16 * 110, 16 * 14, 2, 16 * 48, 8, 4, 7, 4, 0};
    case ES_TYPE_Q4_K:
        return (format){16 * 144, 16 * 16, 4, 16 * 32, 2, 8, 15, 0, 1};
    case ES_TYPE_Q5_K:
        return (format){16 * 176, 16 * 16, 4, 16 * 40, 2, 8, 31, 0, 1};
    case ES_TYPE_Q6_K:
        return (format){16 * 210, 16 * 18, 2, 16 * 96, 8, 4, 63, 32, 0};
    default: // IQ4_XS
        return (format){16 * 136, 16 * 8, 4, 16 * 32, 2, 8, 0, DOT_SIGNED_BIAS, 0};
    }
}

SIMD line stored_line(const uint8_t *run, int i) { return line_load(run + 64 * i); }

// Quad i of 32 elements: low nibbles of 4 lines, then high ones.
SIMD line nibble_line(const uint8_t *lines, int i) {
    return line_field(stored_line(lines, i % 4), i / 4 * 4, 0, 15);
}

// The same of 64 elements: 8 lines.
SIMD line wide_nibble_line(const uint8_t *lines, int i) {
    return line_field(stored_line(lines, i % 8), i / 8 * 4, 0, 15);
}

// Bit t of every byte of a line of fifth bits.
SIMD line fifth_bits(const uint8_t *lines, int t) {
    return line_field(stored_line(lines, 0), t, 4, 1);
}

// Of a run of 32 lines of weights: 4 lines of third bits, 8 of two bits.
SIMD line q3_line(const uint8_t *run, int i) {
    const int t = i % 8, s = i / 8;
    return line_or(line_field(stored_line(run + 256, t), 2 * s, 0, 3),
                   line_field(stored_line(run, t / 2), t % 2 * 4 + s, 2, 1));
}

// Of a run of 32: (two bits, nibbles) x 8, then 8 lines of nibbles.
SIMD line q6_line(const uint8_t *run, int i) {
    const int t = i % 8, s = i / 8;
    const line nibbles = stored_line(run, s % 2 == 0 ? 2 * t + 1 : 16 + t);
    return line_or(line_field(nibbles, s / 2 * 4, 0, 15),
                   line_field(stored_line(run, 2 * t), 2 * s, 4, 3));
}

// Weights of line i of a run: elements 4i .. 4i + 3 of each row.
SIMD line packed_line(es_type type, const uint8_t *run, int i) {
    switch (type) {
    case ES_TYPE_Q4_0:
    case ES_TYPE_Q4_1:
        return nibble_line(run, i);
    case ES_TYPE_Q5_0:
    case ES_TYPE_Q5_1:
        return line_or(nibble_line(run + 64, i), fifth_bits(run, i));
    case ES_TYPE_Q8_0:
        return stored_line(run, i);
    case ES_TYPE_IQ4_NL:
        return line_look_up(iq4_values, nibble_line(run, i));
    case ES_TYPE_MXFP4:
        return line_look_up(e2m1_table, nibble_line(run, i));
    case ES_TYPE_Q2_K:
        return line_field(stored_line(run, i % 8), i / 8 * 2, 0, 3);
    case ES_TYPE_Q3_K:
        return q3_line(run, i);
    case ES_TYPE_Q4_K:
        return wide_nibble_line(run, i);
    case ES_TYPE_Q5_K:
        return line_or(wide_nibble_line(run + 128, i), fifth_bits(run + i / 8 * 64, i % 8));
    case ES_TYPE_Q6_K:
        return q6_line(run, i);
    default: // IQ4_XS
        return line_look_up(iq4_values, nibble_line(run + i / 8 * 256, i % 8));
    }
}

#endif
