// The kernel set `avx512`: AVX-512 F, BW, VL, DQ and VNNI.
#include "kernels/avx512/peak.h"

#include "kernels/cpu.h"
#include "kernels/generic/peak.h"

#define SET_NAME   "avx512"
#define SET_MATMUL es_matmul_avx512
#include "kernels/generic/table.h"

const es_kernels *es_kernels_avx512(void) { return es_cpu_runs_avx512() ? &table : NULL; }
