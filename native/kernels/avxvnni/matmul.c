// The matmul of the AVX-VNNI set.
#include "kernels/avxvnni/dot.h"

#include "kernels/generic/expanded.h"
#include "kernels/generic/matmul.h"
#include "kernels/matmul.h"

void es_matmul_avxvnni(const es_weight *weight, int64_t panel, int64_t n_panels,
                       const es_activation *a, int64_t n_rows, float *out, int64_t ld) {
    matmul(weight, panel, n_panels, a, n_rows, out, ld);
}
