// Kernel sets that this build leaves out, because they are another processor's.
#include "kernels/kernels.h"

#include <stddef.h>

#ifndef EDGESERVE_HAVE_AVX2
const es_kernels *es_kernels_avx2(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_AVX512
const es_kernels *es_kernels_avx512(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_NEON
const es_kernels *es_kernels_neon(void) { return NULL; }
#endif
