// The kernel set `ref`: plain C, for every processor, and the oracle of the other sets.
#include "kernels/ref/peak.h"

#include "kernels/generic/peak.h"

#define SET_NAME   "ref"
#define SET_MATMUL es_matmul_ref
#include "kernels/generic/table.h"

const es_kernels *es_kernels_ref(void) { return &table; }
