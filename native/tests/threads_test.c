// The thread pool: every unit of every region once, by one worker, seen by whoever comes next.
// Memory that regions write is plain, so that the thread sanitizer sees each missing barrier.
#include <string.h>

#include "runtime/os.h"
#include "runtime/threads.h"
#include "tests/check.h"

enum {
    MOST_THREADS = 7,
    MOST_UNITS = 97,
    REGIONS = 1500,
    POOLS = 20,
    LONG_PAUSE = 200000, // nanoseconds: workers sleep by then
};

typedef struct {
    int32_t counts[MOST_UNITS];
    int32_t n_threads;
    int32_t strangers;             // workers out of range
    int64_t sums[MOST_THREADS][8]; // one line each
} region_state;

static void count_units(void *context, int64_t first, int64_t end, int32_t worker) {
    region_state *state = context;
    if (worker < 0 || worker >= state->n_threads) {
        state->strangers++;
        return;
    }
    for (int64_t unit = first; unit < end; unit++) {
        state->counts[unit]++;
        state->sums[worker][0] += unit;
    }
}

// Reads what another worker wrote a region ago.
static void reverse_units(void *context, int64_t first, int64_t end, int32_t worker) {
    int32_t (*values)[MOST_UNITS] = context;
    (void)worker;
    for (int64_t unit = first; unit < end; unit++) {
        values[1][unit] = values[0][MOST_UNITS - 1 - unit] + 1;
    }
}

static void copy_units(void *context, int64_t first, int64_t end, int32_t worker) {
    int32_t (*values)[MOST_UNITS] = context;
    (void)worker;
    memcpy(&values[0][first], &values[1][first], (size_t)(end - first) * sizeof values[0][0]);
}

static void pause_for(uint64_t nanoseconds) {
    const uint64_t start = es_os_nanoseconds();
    while (es_os_nanoseconds() - start < nanoseconds) {
    }
}

// Mistakes of one region over n_units.
static int32_t count_once(es_pool *pool, int64_t n_units, int64_t grain) {
    region_state state; // on the stack, as the executor's are: nobody may look at it later
    memset(&state, 0, sizeof state);
    state.n_threads = es_pool_n_threads(pool);
    es_pool_run(pool, count_units, &state, n_units, grain);
    int32_t wrong = state.strangers;
    int64_t sum = 0;
    for (int64_t unit = 0; unit < MOST_UNITS; unit++) {
        wrong += state.counts[unit] != (unit < n_units);
    }
    for (int32_t worker = 0; worker < MOST_THREADS; worker++) {
        sum += state.sums[worker][0];
    }
    return wrong + (sum != n_units * (n_units - 1) / 2);
}

// Mistakes of many regions, of all sizes, back to back and after pauses.
static int32_t run_regions(es_pool *pool, uint64_t seed) {
    random_source source = {seed};
    int32_t wrong = 0;
    static const int64_t grains[] = {1, 3, 8};
    for (int32_t i = 0; i < REGIONS; i++) {
        const int64_t grain = grains[random_below(&source, 3)];
        wrong += count_once(pool, random_below(&source, MOST_UNITS + 1), grain);
        if (i % 100 == 0) {
            pause_for(LONG_PAUSE);
        }
    }
    return wrong;
}

static int32_t run_chain(es_pool *pool) {
    int32_t values[2][MOST_UNITS] = {{0}};
    for (int32_t i = 0; i < REGIONS; i++) {
        es_pool_run(pool, reverse_units, values, MOST_UNITS, 2);
        es_pool_run(pool, copy_units, values, MOST_UNITS, 5);
    }
    int32_t wrong = 0;
    for (int32_t unit = 0; unit < MOST_UNITS; unit++) {
        wrong += values[0][unit] != REGIONS;
    }
    return wrong;
}

// What a second engine in the process does.
typedef struct {
    int32_t wrong;
} second_engine;

static void second_main(void *argument) {
    second_engine *second = argument;
    es_pool *pool = NULL;
    second->wrong = es_pool_create(3, &pool) != ES_OK;
    second->wrong += second->wrong ? 0 : run_regions(pool, 77);
    es_pool_free(pool);
}

int main(void) {
    for (int32_t n = 1; n <= MOST_THREADS; n++) {
        es_pool *pool = NULL;
        CHECK(es_pool_create(n, &pool) == ES_OK, "a pool of %d", n);
        CHECK(es_pool_n_threads(pool) == n, "threads of a pool of %d", n);
        CHECK(run_regions(pool, (uint64_t)n) == 0, "units, %d threads", n);
        CHECK(run_chain(pool) == 0, "what another worker wrote, %d threads", n);
        es_pool_free(pool);
    }
    int32_t wrong = 0;
    for (int32_t i = 0; i < POOLS; i++) { // freed asleep, awake, and before they were ever used
        es_pool *pool = NULL;
        wrong += es_pool_create(4, &pool) != ES_OK;
        wrong += i % 2 ? count_once(pool, MOST_UNITS, 1) : 0;
        if (i % 4 == 3) {
            pause_for(LONG_PAUSE);
        }
        es_pool_free(pool);
    }
    CHECK(wrong == 0, "pools that live shortly");
    es_pool_free(NULL);

    second_engine second = {0};
    es_os_thread *thread = NULL;
    es_pool *pool = NULL;
    CHECK(es_pool_create(2, &pool) == ES_OK, "a pool beside another");
    CHECK(es_os_thread_start(second_main, &second, &thread) == ES_OK, "a second engine");
    CHECK(run_regions(pool, 78) == 0, "units, beside another pool");
    es_os_thread_join(thread);
    CHECK(second.wrong == 0, "units of the other pool");
    es_pool_free(pool);
    return report();
}
