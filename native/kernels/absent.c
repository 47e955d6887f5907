// Kernel sets that this build leaves out: another processor's, or unknown to its compiler.
#include "kernels/kernels.h"

#include <stddef.h>

#ifndef EDGESERVE_HAVE_AVX2
const es_kernels *es_kernels_avx2(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_AVXVNNI
const es_kernels *es_kernels_avxvnni(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_AVX512
const es_kernels *es_kernels_avx512(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_NEON
const es_kernels *es_kernels_neon(void) { return NULL; }
#endif

#ifndef EDGESERVE_HAVE_I8MM
const es_kernels *es_kernels_i8mm(void) { return NULL; }
#endif
