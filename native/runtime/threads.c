// The pool: a counter per worker to claim chunks from, one word to sleep on.
//
// A region's chunks are shared out in ranges, one a worker, so that each reads its own stretch of
// memory from front to back; whoever has finished helps the next, a chunk at a time. A region is
// published by its number, `generation`. Workers copy its description and claim chunks from
// counters that carry the same number: a worker that comes late, or was put to sleep by the system
// on the way, can claim nothing and so holds nobody up. The caller claims too, and leaves when
// every unit is done.
#include "runtime/threads.h"

#include <stdlib.h>

#include "runtime/os.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

enum {
    // About 20 us: longer than the gap between regions of a step, shorter than a scheduler's
    // time slice, so that a core shared with another program is given up soon.
    SPIN_NANOSECONDS = 20000,
    SPINS_PER_LOOK = 64,
};

typedef struct {
    es_pool *pool;
    int32_t index;
    es_os_thread *thread;
} worker;

// Of one worker: how much of its range of chunks is claimed.
typedef struct {
    _Alignas(64) atomic_ullong claim; // high half: generation; low half: chunks claimed
} share;

struct es_pool {
    int32_t n_threads;
    worker *workers; // n_threads - 1

    share *shares; // n_threads
    size_t shares_bytes;

    // The region that runs. Written while all claims are closed and carry the new number: whoever
    // reads a new member fails to claim under the old number.
    _Atomic(es_region_fn) fn;
    _Atomic(void *) context;
    atomic_llong n_units;
    atomic_llong grain;

    _Alignas(64) atomic_llong n_done; // units
    _Alignas(64) atomic_uint generation;
    atomic_uint n_sleeping;
    _Alignas(64) atomic_uint done_word; // raised when the last unit is done; the caller waits on it
    atomic_uint caller_sleeps;
    atomic_int stop;
};

typedef struct {
    es_region_fn fn;
    void *context;
    int64_t n_units;
    int64_t grain;
} region;

// Takes the next of a share's n chunks in region `generation`: its number, or -1 when there is
// none.
static int64_t claim_chunk(share *from, uint32_t generation, int64_t n) {
    unsigned long long claim = atomic_load_explicit(&from->claim, memory_order_acquire);
    while ((uint32_t)(claim >> 32) == generation && (int64_t)(uint32_t)claim < n) {
        if (atomic_compare_exchange_weak_explicit(&from->claim, &claim, claim + 1,
                                                  memory_order_acq_rel, memory_order_acquire)) {
            return (int64_t)(uint32_t)claim;
        }
    }
    return -1;
}

// Runs what is left of the range of worker `owner`; the number of units.
static int64_t run_range(es_pool *pool, const region *r, uint32_t generation, int32_t owner,
                         int32_t index) {
    const int64_t n_chunks = (r->n_units + r->grain - 1) / r->grain;
    const int64_t from = n_chunks * owner / pool->n_threads;
    const int64_t to = n_chunks * (owner + 1) / pool->n_threads;
    int64_t n_done = 0;
    for (;;) {
        const int64_t chunk = claim_chunk(&pool->shares[owner], generation, to - from);
        if (chunk < 0) {
            return n_done;
        }
        const int64_t first = (from + chunk) * r->grain;
        const int64_t end = first + r->grain < r->n_units ? first + r->grain : r->n_units;
        r->fn(r->context, first, end, index);
        n_done += end - first;
    }
}

static void run_chunks(es_pool *pool, const region *r, uint32_t generation, int32_t index) {
    int64_t n_done = 0;
    for (int32_t i = 0; i < pool->n_threads; i++) {
        n_done += run_range(pool, r, generation, (index + i) % pool->n_threads, index);
    }
    if (n_done == 0) {
        return; // of an old region nothing may be touched
    }
    const int64_t before = atomic_fetch_add_explicit(&pool->n_done, n_done, memory_order_acq_rel);
    if (before + n_done == r->n_units) {
        atomic_store_explicit(&pool->done_word, generation, memory_order_seq_cst);
        if (atomic_load_explicit(&pool->caller_sleeps, memory_order_seq_cst)) {
            es_os_wake_all(&pool->done_word);
        }
    }
}

// Spins, then sleeps, until *word != old.
static uint32_t wait_change(atomic_uint *word, uint32_t old, atomic_uint *sleepers) {
    const uint64_t start = es_os_nanoseconds();
    for (;;) {
        for (int32_t i = 0; i < SPINS_PER_LOOK; i++) {
            const uint32_t now = atomic_load_explicit(word, memory_order_acquire);
            if (now != old) {
                return now;
            }
            RELAX();
        }
        if (es_os_nanoseconds() - start > SPIN_NANOSECONDS) {
            break;
        }
    }
    atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
    uint32_t now;
    while ((now = atomic_load_explicit(word, memory_order_seq_cst)) == old) {
        es_os_wait(word, old);
    }
    atomic_fetch_sub_explicit(sleepers, 1, memory_order_seq_cst);
    return now;
}

static void worker_main(void *argument) {
    worker *self = argument;
    es_pool *pool = self->pool;
    es_os_float_control_begin();
    uint32_t seen = 0;
    for (;;) {
        seen = wait_change(&pool->generation, seen, &pool->n_sleeping);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire)) {
            return;
        }
        const region r = {atomic_load_explicit(&pool->fn, memory_order_acquire),
                          atomic_load_explicit(&pool->context, memory_order_acquire),
                          atomic_load_explicit(&pool->n_units, memory_order_acquire),
                          atomic_load_explicit(&pool->grain, memory_order_acquire)};
        run_chunks(pool, &r, seen, self->index);
    }
}

static void publish(es_pool *pool, const region *r, uint32_t generation) {
    const unsigned long long tag = (unsigned long long)generation << 32;
    for (int32_t i = 0; i < pool->n_threads; i++) { // closed
        atomic_store_explicit(&pool->shares[i].claim, tag | UINT32_MAX, memory_order_release);
    }
    atomic_store_explicit(&pool->fn, r->fn, memory_order_release);
    atomic_store_explicit(&pool->context, r->context, memory_order_release);
    atomic_store_explicit(&pool->n_units, r->n_units, memory_order_release);
    atomic_store_explicit(&pool->grain, r->grain, memory_order_release);
    atomic_store_explicit(&pool->n_done, 0, memory_order_release);
    for (int32_t i = 0; i < pool->n_threads; i++) { // open
        atomic_store_explicit(&pool->shares[i].claim, tag, memory_order_release);
    }
    atomic_store_explicit(&pool->generation, generation, memory_order_seq_cst);
    if (atomic_load_explicit(&pool->n_sleeping, memory_order_seq_cst) > 0) {
        es_os_wake_all(&pool->generation);
    }
}

void es_pool_run(es_pool *pool, es_region_fn fn, void *context, int64_t n_units, int64_t grain) {
    if (n_units <= grain || pool->n_threads == 1) {
        if (n_units > 0) {
            fn(context, 0, n_units, 0);
        }
        return;
    }
    const region r = {fn, context, n_units, grain};
    const uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed) + 1;
    publish(pool, &r, generation);
    run_chunks(pool, &r, generation, 0);
    const uint32_t done = atomic_load_explicit(&pool->done_word, memory_order_acquire);
    if (done != generation) {
        wait_change(&pool->done_word, done, &pool->caller_sleeps);
    }
}

es_status es_pool_create(int32_t n_threads, es_pool **out) {
    es_pool *pool = NULL;
    const size_t size = (sizeof *pool + 63) / 64 * 64;
    pool = es_os_pages(size, 0);
    if (pool == NULL) {
        return ES_ERR_MEMORY;
    }
    pool->n_threads = 1;
    pool->shares_bytes = (size_t)n_threads * sizeof *pool->shares;
    pool->shares = es_os_pages(pool->shares_bytes, 0);
    pool->workers = calloc((size_t)n_threads, sizeof *pool->workers);
    if (pool->shares == NULL || pool->workers == NULL) {
        es_pool_free(pool);
        return ES_ERR_MEMORY;
    }
    for (int32_t i = 0; i + 1 < n_threads; i++) {
        worker *next = &pool->workers[i];
        *next = (worker){pool, i + 1, NULL};
        if (es_os_thread_start(worker_main, next, &next->thread) != ES_OK) {
            es_pool_free(pool);
            return ES_ERR_SYSTEM;
        }
        pool->n_threads++;
    }
    *out = pool;
    return ES_OK;
}

void es_pool_free(es_pool *pool) {
    if (pool == NULL) {
        return;
    }
    atomic_store_explicit(&pool->stop, 1, memory_order_release);
    atomic_fetch_add_explicit(&pool->generation, 1, memory_order_seq_cst);
    es_os_wake_all(&pool->generation);
    for (int32_t i = 0; i + 1 < pool->n_threads; i++) {
        es_os_thread_join(pool->workers[i].thread);
    }
    free(pool->workers);
    if (pool->shares != NULL) {
        es_os_pages_free(pool->shares, pool->shares_bytes);
    }
    es_os_pages_free(pool, (sizeof *pool + 63) / 64 * 64);
}

int32_t es_pool_n_threads(const es_pool *pool) { return pool->n_threads; }
