// Blocks to integers, written for obviousness: the reference kernels' view of every type.
#include "quants/integers.h"

#include "quants/bits.h"
#include "quants/scalar.h"

enum { HALF_BLOCK = ES_BLOCK / 2 };

static void nibbles(const uint8_t *qs, int16_t *w) {
    for (int i = 0; i < HALF_BLOCK; i++) {
        w[i] = qs[i] & 15;
        w[i + HALF_BLOCK] = qs[i] >> 4;
    }
}

static void add_fifth_bits(const uint8_t *qh, int16_t *w) {
    for (int i = 0; i < ES_BLOCK; i++) {
        w[i] = (int16_t)(w[i] | bit_of(qh, i) << 4);
    }
}

static void take_off(int offset, int n, int16_t *w) {
    for (int i = 0; i < n; i++) {
        w[i] = (int16_t)(w[i] - offset);
    }
}

static void look_up(const int8_t *values, int n, int16_t *w) {
    for (int i = 0; i < n; i++) {
        w[i] = values[w[i]];
    }
}

static void read_q4_0(const es_block_q4_0 *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    nibbles(block->qs, out->w);
    take_off(8, ES_BLOCK, out->w);
}

static void read_q4_1(const es_block_q4_1 *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    out->m = half_to_float(block->m);
    nibbles(block->qs, out->w);
}

static void read_q5_0(const es_block_q5_0 *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    nibbles(block->qs, out->w);
    add_fifth_bits(block->qh, out->w);
    take_off(16, ES_BLOCK, out->w);
}

static void read_q5_1(const es_block_q5_1 *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    out->m = half_to_float(block->m);
    nibbles(block->qs, out->w);
    add_fifth_bits(block->qh, out->w);
}

static void read_q8_0(const es_block_q8_0 *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    for (int i = 0; i < ES_BLOCK; i++) {
        out->w[i] = block->qs[i];
    }
}

static void read_iq4_nl(const es_block_iq4_nl *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    nibbles(block->qs, out->w);
    look_up(iq4_values, ES_BLOCK, out->w);
}

static void read_mxfp4(const es_block_mxfp4 *block, es_block_integers *out) {
    out->d = e8m0_to_half_float(block->e);
    nibbles(block->qs, out->w);
    look_up(e2m1_doubled, ES_BLOCK, out->w);
}

static void read_q2_k(const es_block_q2_k *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    out->m = half_to_float(block->dmin);
    for (int i = 0; i < ES_SUPERBLOCK; i++) {
        out->w[i] = (int16_t)two_bits(block->qs, i);
    }
    for (int group = 0; group < 16; group++) {
        out->scale[group] = block->scales[group] & 15;
        out->min[group] = block->scales[group] >> 4;
    }
}

static void read_q3_k(const es_block_q3_k *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    for (int i = 0; i < ES_SUPERBLOCK; i++) {
        const int third_bit = block->hmask[i % 32] >> (i / 32) & 1;
        out->w[i] = (int16_t)((two_bits(block->qs, i) | third_bit << 2) - 4);
    }
    for (int group = 0; group < 16; group++) {
        out->scale[group] = (int16_t)(q3_scale(block->scales, group) - 32);
    }
}

static void read_scales_mins(const uint8_t *packed, es_block_integers *out) {
    for (int group = 0; group < 16; group++) {
        int scale, min;
        unpack_scale_min(packed, group / 2, &scale, &min);
        out->scale[group] = (int16_t)scale;
        out->min[group] = (int16_t)min;
    }
}

static void read_q4_k(const es_block_q4_k *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    out->m = half_to_float(block->dmin);
    read_scales_mins(block->scales, out);
    for (int i = 0; i < ES_SUPERBLOCK; i++) {
        out->w[i] = (int16_t)group_nibble(block->qs, i / 32, i % 32);
    }
}

static void read_q5_k(const es_block_q5_k *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    out->m = half_to_float(block->dmin);
    read_scales_mins(block->scales, out);
    for (int i = 0; i < ES_SUPERBLOCK; i++) {
        const int fifth_bit = block->qh[i % 32] >> (i / 32) & 1;
        out->w[i] = (int16_t)(group_nibble(block->qs, i / 32, i % 32) | fifth_bit << 4);
    }
}

static void read_q6_k(const es_block_q6_k *block, es_block_integers *out) {
    out->d = half_to_float(block->d);
    for (int i = 0; i < ES_SUPERBLOCK; i++) {
        out->w[i] = (int16_t)((run_nibble(block->ql, i) | two_bits(block->qh, i) << 4) - 32);
    }
    for (int group = 0; group < 16; group++) {
        out->scale[group] = block->scales[group];
    }
}

static void read_iq4_xs(const es_block_iq4_xs *block, es_block_integers *out) {
    const uint32_t scales_h = read_u16(block->scales_h);
    out->d = half_to_float(block->d);
    for (int group = 0; group < 8; group++) {
        nibbles(block->qs + HALF_BLOCK * group, out->w + ES_BLOCK * group);
        const int scale = iq4_scale(block->scales_l, scales_h, group) - 32;
        out->scale[2 * group] = out->scale[2 * group + 1] = (int16_t)scale;
    }
    look_up(iq4_values, ES_SUPERBLOCK, out->w);
}

void es_block_integers_read(es_type type, const void *block, es_block_integers *out) {
    out->m = 0.0f;
    switch (type) {
    case ES_TYPE_Q4_0:
        read_q4_0(block, out);
        return;
    case ES_TYPE_Q4_1:
        read_q4_1(block, out);
        return;
    case ES_TYPE_Q5_0:
        read_q5_0(block, out);
        return;
    case ES_TYPE_Q5_1:
        read_q5_1(block, out);
        return;
    case ES_TYPE_Q8_0:
        read_q8_0(block, out);
        return;
    case ES_TYPE_IQ4_NL:
        read_iq4_nl(block, out);
        return;
    case ES_TYPE_MXFP4:
        read_mxfp4(block, out);
        return;
    case ES_TYPE_Q2_K:
        read_q2_k(block, out);
        return;
    case ES_TYPE_Q3_K:
        read_q3_k(block, out);
        return;
    case ES_TYPE_Q4_K:
        read_q4_k(block, out);
        return;
    case ES_TYPE_Q5_K:
        read_q5_k(block, out);
        return;
    case ES_TYPE_Q6_K:
        read_q6_k(block, out);
        return;
    case ES_TYPE_IQ4_XS:
        read_iq4_xs(block, out);
        return;
    case ES_TYPE_F32:
    case ES_TYPE_F16:
    case ES_TYPE_BF16:
        return; // not integers
    }
}
