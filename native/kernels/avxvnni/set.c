// The kernel set `avxvnni`: AVX2, FMA, F16C and AVX-VNNI, which processors without AVX-512 have.
#include "kernels/avxvnni/peak.h"

#include "kernels/cpu.h"
#include "kernels/generic/peak.h"

#define SET_NAME   "avxvnni"
#define SET_MATMUL es_matmul_avxvnni
#include "kernels/generic/table.h"

const es_kernels *es_kernels_avxvnni(void) { return es_cpu_runs_avxvnni() ? &table : NULL; }
