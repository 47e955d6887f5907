// Which kernel set computes: the one asked for, or the best of this build that the processor runs.
#include <stddef.h>
#include <string.h>

#include "kernels/kernels.h"

// Best first.
static const struct {
    const char *name;
    const es_kernels *(*get)(void);
} sets[] = {
    {"avx512", es_kernels_avx512}, {"avxvnni", es_kernels_avxvnni}, {"avx2", es_kernels_avx2},
    {"i8mm", es_kernels_i8mm},     {"neon", es_kernels_neon},       {"ref", es_kernels_ref},
};

const es_kernels *es_kernels_select(const char *name) {
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        if (name != NULL && strcmp(name, sets[i].name) != 0) {
            continue;
        }
        const es_kernels *kernels = sets[i].get();
        if (kernels != NULL) {
            return kernels;
        }
    }
    return NULL;
}

const char *es_kernel_set(int32_t index, int32_t *runs) {
    if (runs == NULL || index < 0 || (size_t)index >= sizeof sets / sizeof sets[0]) {
        return NULL;
    }
    *runs = sets[index].get() != NULL;
    return sets[index].name;
}
