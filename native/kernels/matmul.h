// The matmul of every kernel set; kernels.h says what it computes. Each is a file of its own.
#ifndef ES_KERNELS_MATMUL_H
#define ES_KERNELS_MATMUL_H

#include "kernels/kernels.h"

typedef void es_matmul(const es_weight *weight, int64_t panel, int64_t n_panels,
                       const es_activation *a, int64_t n_rows, float *out, int64_t ld);

es_matmul es_matmul_ref;
es_matmul es_matmul_avx2;
es_matmul es_matmul_avxvnni;
es_matmul es_matmul_avx512;
es_matmul es_matmul_neon;
es_matmul es_matmul_i8mm;

#endif
