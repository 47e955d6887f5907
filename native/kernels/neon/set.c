// The kernel set `neon`: 64-bit ARM with dot products.
#include "kernels/neon/peak.h"

#include "kernels/cpu.h"
#include "kernels/generic/peak.h"

#define SET_NAME   "neon"
#define SET_MATMUL es_matmul_neon
#include "kernels/generic/table.h"

const es_kernels *es_kernels_neon(void) { return es_cpu_runs_neon() ? &table : NULL; }
