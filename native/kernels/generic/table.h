// The table of one kernel set: the generic bodies over the simd.h that was included before. The
// set says what it is called, SET_NAME, and gives its matmul, SET_MATMUL, which is a file of its
// own: it takes long to compile.
#ifndef ES_KERNELS_GENERIC_TABLE_H
#define ES_KERNELS_GENERIC_TABLE_H

#include "kernels/generic/attention.h"
#include "kernels/generic/kv_store.h"
#include "kernels/generic/rows.h"
#include "kernels/kernels.h"
#include "kernels/matmul.h"

static const es_kernels table = {
    .name = SET_NAME,
    .matmul = SET_MATMUL,
    .weight_row = es_weight_row,
    .quantize_32 = quantize_32,
    .quantize_256 = quantize_256,
    .rms_norm = rms_norm,
    .rope_interleaved = rope_interleaved,
    .rope_halves = rope_halves,
    .add = add,
    .scale = scale,
    .add_scaled = add_scaled,
    .gated_silu = gated_silu,
    .gated_gelu_tanh = gated_gelu_tanh,
    .gated_relu_squared = gated_relu_squared,
    .soft_cap = soft_cap,
    .store_key = store_key,
    .store_value = store_value,
    .attention_chunk = attention_chunk,
    .attention_merge = attention_merge,
    .attention_finish = attention_finish,
    .argmax = argmax,
    .sum_exp = sum_exp,
    .int8_peak = int8_peak,
};

#endif
