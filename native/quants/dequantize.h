// One function per quant type, each widening whole blocks to float32. They trust their arguments:
// dequantize.c, the API edge, has checked them.
#ifndef ES_QUANTS_DEQUANTIZE_H
#define ES_QUANTS_DEQUANTIZE_H

#include <stddef.h>

#include "edgeserve.h"

// dst: (n_blocks * block_elements)
typedef void dequantize_blocks(const void *src, size_t n_blocks, float *restrict dst);

dequantize_blocks es_dequantize_f32;
dequantize_blocks es_dequantize_f16;
dequantize_blocks es_dequantize_bf16;

dequantize_blocks es_dequantize_q4_0;
dequantize_blocks es_dequantize_q4_1;
dequantize_blocks es_dequantize_q5_0;
dequantize_blocks es_dequantize_q5_1;
dequantize_blocks es_dequantize_q8_0;

dequantize_blocks es_dequantize_q2_k;
dequantize_blocks es_dequantize_q3_k;
dequantize_blocks es_dequantize_q4_k;
dequantize_blocks es_dequantize_q5_k;
dequantize_blocks es_dequantize_q6_k;

dequantize_blocks es_dequantize_iq4_nl;
dequantize_blocks es_dequantize_iq4_xs;
dequantize_blocks es_dequantize_mxfp4;

#endif
