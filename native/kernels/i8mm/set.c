// The kernel set `i8mm`: 64-bit ARM with dot products and int8 matrix products. Everything is as in
// `neon` but the products of expanded panels.
#include "kernels/i8mm/peak.h"

#include "kernels/cpu.h"
#include "kernels/generic/peak.h"

#define SET_NAME   "i8mm"
#define SET_MATMUL es_matmul_i8mm
#include "kernels/generic/table.h"

const es_kernels *es_kernels_i8mm(void) { return es_cpu_runs_i8mm() ? &table : NULL; }
