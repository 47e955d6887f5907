// The kernel table and the numerics contract `exact-1`: which arithmetic, in which order.
//
// A kernel set is one filled es_kernels. Every set gives the same bits, because the order of every
// reduction is fixed here and not by a register's width:
//  - An output element is a function of its own row. Rows, tiles and threads never change it.
//  - Sums over a row run in 16 virtual lanes (element i adds to lane i mod 16, in order, by fma
//    or add as stated), then one tree: lane i += lane i + 8, then 4, 2, 1.
//  - a*b + c is one fma wherever it is written so. No other contraction, no reassociation.
//  - max(a, b) is a > b ? a : b. Float to int is round to nearest even, of values known to fit.
//  - Mixtures of experts: the chosen are the largest logits, sorted, of equals the lowest id first.
//    A weight is exp(logit - largest) / total, total = sum_exp over the chosen in their order where
//    weights are to sum to 1, over all experts by id where not; then times a scale that is not 1.
//    Each expert's product is the matmul of its own rows; out = fma(run, weight, out) over the
//    chosen in their order, from zero.
//  - exp, tanh, SiLU, GELU are the polynomials of kernels/generic/math.h.
//  - NaN stays NaN; which of its many bit patterns comes out is the processor's choice.
//  - Subnormals are kept; rounding is to nearest (workers set their control register).
// Kernels cannot fail, do not allocate, and trust their arguments: es_* functions checked them.
#ifndef ES_KERNELS_KERNELS_H
#define ES_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kv_block.h"
#include "kernels/weight.h"

enum {
    ES_LANES = 16,     // virtual lanes, and weight rows of a panel
    ES_KV_CHUNK = 128, // tokens of an attention partial, at absolute positions
    ES_HEAD_MAX = 256, // the largest K or V head size
    ES_FLOAT_RUN = 16, // products of float weights that add up before others join them
    ES_FLOAT_GROUP = 128,
};

// What a matmul reads for one batch of rows. Strides are elements; rows of x and q
// start 64-byte aligned.
// Which members are set follows from es_weight_activation(type):
//  ES_ACT_F32:  x.
//  ES_ACT_Q32:  q, d and s, one d and s per 32:  d = amax / 127, q = round(x * (127 / amax)),
//               s = (float)(sum of q), which is exact: kernels that read weights with an offset
//               need the integer. A block with amax < 1e-30 is all zero, d and s too. In a
//               block that holds NaN or infinity d is NaN and all else zero: nothing hides it.
//  ES_ACT_Q256: q, d per 256 as above, and sums: the sum of q over each 16.
typedef struct {
    const float *x;      // (rows, stride_x)
    const int8_t *q;     // (rows, stride_q)
    const float *d;      // (rows, stride_d)
    const float *s;      // (rows, stride_d)
    const int16_t *sums; // (rows, stride_q / 16)
    int64_t stride_x;
    int64_t stride_q;
    int64_t stride_d;
} es_activation;

// One sequence's keys and values, all of one KV head, and how scores are made with them.
typedef struct {
    const uint8_t *k_pool; // key blocks of `type`: kernels/kv_block.h
    const uint8_t *v_pool; // value blocks
    const int32_t *table;  // block ids of positions 0.., 16.., ...
    int32_t key_size;
    int32_t value_size;
    float scale;    // on q.k
    float soft_cap; // 0: none. score = soft_cap * tanh(score / soft_cap)
    es_kv_type type;
} es_attention_cache;

// One query head of one row, and what the row sees.
typedef struct {
    const float *q; // (key_size,)
    int32_t first;  // the first visible position (0, or the window's edge)
    int32_t end;    // one past the last visible position; first < end
} es_attention_query;

// A partial softmax over one chunk of positions: m the maximum, l the sum of exp(score - m),
// o the sum of exp(score - m) * v. An empty partial has m = -infinity, l = 0, o = 0; any other l is
// 1 at least, or NaN.
typedef struct {
    float m;
    float l;
    float *o; // (value_size,)
} es_attention_partial;

typedef struct {
    const char *name;

    // out[r * ld + 16 * p + lane] = row r times weight row 16 * (panel + p) + lane, for p in
    // [0, n_panels) and r in [0, n_rows). Rows past the weight's last give 0.
    //  Q32:  per block, in k order:  F = fma(d, da * (float)S, F), S the exact int32 sum of
    //        w * q, offsets included; then, for types with a minimum,  F = fma(m, da * s, F).
    //  Q256: per block, in k order:  F = fma(d * da, (float)I, F), I = sum of w * q * scale;
    //        then, for types with minimums,  F = fma(-(dmin * da), (float)N, F),
    //        N = sum of min * (sum of q).
    //  F32:  f = fma(w, x, f) over a run of 16 elements, from 0; group = group + f over the runs of
    //        128 elements, from 0; F = F + group. All in k order; the last ones may be shorter.
    // It starts from F = 0.
    void (*matmul)(const es_weight *weight, int64_t panel, int64_t n_panels, const es_activation *a,
                   int64_t n_rows, float *out, int64_t ld);

    // Row `row` of a weight as float32, exactly: embeddings. `out` has weight->n_cols elements.
    void (*weight_row)(const es_weight *weight, int64_t row, float *out);

    // The activations of one row x (n,); a last block that n does not fill is filled with zeros.
    void (*quantize_32)(const float *x, int64_t n, int8_t *q, float *d, float *s);
    void (*quantize_256)(const float *x, int64_t n, int8_t *q, float *d, int16_t *sums);

    // out = (x * (1 / sqrt(sum(x^2) / n + epsilon))) * weight. In place is fine.
    void (*rms_norm)(const float *x, const float *weight, int64_t n, float epsilon, float *out);

    // Rotates the first 2 * n_pairs elements of a head. cos_sin holds n_pairs cosines, then
    // n_pairs sines. Pairs are (2i, 2i + 1), or (i, i + n_pairs):
    //  a' = fma(a, cos, -(b * sin)),  b' = fma(a, sin, b * cos).
    void (*rope_interleaved)(float *head, const float *cos_sin, int64_t n_pairs);
    void (*rope_halves)(float *head, const float *cos_sin, int64_t n_pairs);

    // Element by element; in place is fine. gated: out = f(gate) * up.
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*scale)(const float *x, float factor, int64_t n, float *out);
    // out = fma(x, factor, out).
    void (*add_scaled)(const float *x, float factor, int64_t n, float *out);
    void (*gated_silu)(const float *gate, const float *up, int64_t n, float *out);
    void (*gated_gelu_tanh)(const float *gate, const float *up, int64_t n, float *out);
    void (*gated_relu_squared)(const float *gate, const float *up, int64_t n, float *out);
    void (*soft_cap)(const float *x, float cap, int64_t n, float *out);

    // Stores one token's key (key_size,) or value (value_size,) at `slot` of a block, rounded to
    // nearest even. Integer types, for each 32 elements, the last ones filled up with zeros:
    //  Q8_0: d = (half)(amax / 127), q = round(x * (1 / d)), from -127 to 127.
    //  Q4_0: d = (half)(e / -8), q = round(x * (1 / d)), from -8 to 7; e is the largest element if
    //        it is larger than the smallest one's negative, else the smallest.
    //  d = 0 gives q = 0. Where an element, or d, is NaN or infinite, d is NaN and q zero.
    void (*store_key)(es_kv_type type, const float *k, int64_t key_size, void *block, int64_t slot);
    void (*store_value)(es_kv_type type, const float *v, int64_t value_size, void *block,
                        int64_t slot);

    // The partials of chunk `chunk` (positions 128 * chunk to 128 * chunk + 127, cut to what a
    // query sees) for n_queries queries of any rows, o given. Each is what it is alone. From zero,
    // in this order:
    //  dot: two accumulators, even d and odd d, fma in order of d; then their sum.
    //  score: the dot of q and k, times scale. Integer types: for each 32 elements, in order,
    //   f = fma(d, dot of q and integers, f) from f = 0; then f times scale.
    //  m = maximum of visible scores; p = exp(score - m), selected to 0 where not visible.
    //  l: 16 lanes over the chunk's tokens, then the tree.
    //  o = fma(p, v, o), tokens in order. Integer types: o = fma(p * d, integer, o).
    void (*attention_chunk)(const es_attention_cache *cache, int64_t chunk,
                            const es_attention_query *queries, int64_t n_queries,
                            es_attention_partial *partials);

    // Each of n partials a merged with its b: m' = max(a.m, b.m); with fa = exp(a.m - m') and
    // fb = exp(b.m - m'): l = fma(b.l, fb, a.l * fa), o = fma(b.o, fb, a.o * fa). An empty b
    // changes nothing.
    void (*attention_merge)(es_attention_partial *a, const es_attention_partial *b, int64_t n,
                            int64_t value_size);

    // out = o / l, each element divided (not multiplied by 1 / l).
    void (*attention_finish)(const es_attention_partial *a, int64_t n, float *out);

    // Over logits (n,): the largest, lowest index among equals; is_finite is 0 if any is NaN or
    // +infinity, or all are -infinity.
    void (*argmax)(const float *x, int64_t n, int64_t *index, float *value, int32_t *is_finite);

    // sum of exp(x - shift), 16 lanes and the tree.
    float (*sum_exp)(const float *x, int64_t n, float shift);

    // For measuring: multiplies and adds int8 as fast as the set can, without reading memory, and
    // returns how many operations that were.
    int64_t (*int8_peak)(int64_t n_rounds);
} es_kernels;

// NULL where this build has no such set, or this processor cannot run it.
const es_kernels *es_kernels_ref(void);
const es_kernels *es_kernels_avx2(void);
const es_kernels *es_kernels_avxvnni(void);
const es_kernels *es_kernels_avx512(void);
const es_kernels *es_kernels_neon(void);
const es_kernels *es_kernels_i8mm(void);

// The set named, or the best that this processor runs; NULL where there is no such set.
const es_kernels *es_kernels_select(const char *name);

#endif
