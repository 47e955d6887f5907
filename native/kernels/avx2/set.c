// The kernel set `avx2`: AVX2, FMA and F16C.
#include "kernels/avx2/peak.h"

#include "kernels/cpu.h"
#include "kernels/generic/peak.h"

#define SET_NAME   "avx2"
#define SET_MATMUL es_matmul_avx2
#include "kernels/generic/table.h"

const es_kernels *es_kernels_avx2(void) { return es_cpu_runs_avx2() ? &table : NULL; }
