// What a program asks right after loading the library: which interface is this, and do its structs
// lie in memory as the program's declarations say.
#include <string.h>

#include "edgeserve.h"
#include "runtime/layout.h"

#if defined(__FAST_MATH__)
#error "edgeserve must not be built with -ffast-math: results would depend on the compiler"
#endif
// The library is built for the oldest processor of its kind; only kernel folders add instructions.
#if defined(__AVX__) || defined(__FMA__)
#error "edgeserve must not be built with -march or -mavx: it would crash on other processors"
#endif

int32_t es_abi_version(void) { return ES_ABI_VERSION; }

int64_t es_layout(const char *name) {
    if (name == NULL) {
        return -1;
    }
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        if (strcmp(layout[i].name, name) == 0) {
            return layout[i].value;
        }
    }
    return -1;
}

const char *es_status_text(es_status status) {
    switch (status) {
    case ES_OK:
        return "ok";
    case ES_ERR_NULL:
        return "a required pointer is null";
    case ES_ERR_TYPE:
        return "unknown quant type";
    case ES_ERR_LENGTH:
        return "a count is out of range or no whole number of blocks";
    case ES_ERR_SIZE:
        return "the source is not as long as its blocks";
    case ES_ERR_ALIGNMENT:
        return "the destination is not aligned";
    case ES_ERR_MEMORY:
        return "the system has no memory left";
    case ES_ERR_RANGE:
        return "an index or id is out of range";
    case ES_ERR_ABORTED:
        return "the step was aborted";
    case ES_ERR_SYSTEM:
        return "the operating system refused";
    case ES_ERR_KERNELS:
        return "no such kernel set, or this processor cannot run it";
    }
    return "unknown status";
}
