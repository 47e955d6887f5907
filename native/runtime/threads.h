// A pool of worker threads that run one region at a time, and wait cheaply between regions.
//
// Each worker claims units in chunks, from a stretch of its own and then from the others', so that
// a busy core delays its share and no more. Between regions they spin for a bounded time, then
// sleep on a futex (or the system's wait-on-address). Nothing here allocates after creation.
#ifndef ES_RUNTIME_THREADS_H
#define ES_RUNTIME_THREADS_H

#include <stdint.h>

#include "edgeserve.h"

typedef struct es_pool es_pool;

// Computes units [first, end) of a region. `worker` is 0 (the caller's thread) to n_threads - 1.
typedef void (*es_region_fn)(void *context, int64_t first, int64_t end, int32_t worker);

// n_threads counts the calling thread. ES_ERR_SYSTEM if the system starts none.
es_status es_pool_create(int32_t n_threads, es_pool **out);
void es_pool_free(es_pool *pool);
int32_t es_pool_n_threads(const es_pool *pool);

// Runs fn over units [0, n_units), claimed `grain` at a time, on all workers; returns when every
// unit is done, and all writes are visible. One region at a time. A region of one grain, or a
// pool of one, runs on the calling thread without waking anybody.
void es_pool_run(es_pool *pool, es_region_fn fn, void *context, int64_t n_units, int64_t grain);

#endif
