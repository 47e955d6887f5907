// How many threads are worth starting, for programs that choose before they make an executor.
#include "edgeserve.h"
#include "runtime/os.h"

int32_t es_n_cores(void) { return es_os_n_cores(); }
