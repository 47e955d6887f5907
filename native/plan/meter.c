// What this machine gives at most, on all threads: reading memory, and multiplying int8.
#include <stdlib.h>

#include "kernels/kernels.h"
#include "runtime/os.h"
#include "runtime/threads.h"

enum {
    LINE = 64,
    STREAMS = 8, // a thread that reads several at once is faster than one that reads one
    UNIT_BYTES = 1 << 20,
    STREAM_WORDS = UNIT_BYTES / STREAMS / 8,
    LINE_WORDS = LINE / 8,
    ROUNDS = 1 << 14, // a fraction of a millisecond
    UNITS_A_THREAD = 4,
    LONG_ENOUGH_NS = 8000000,
};

struct es_meter {
    const es_kernels *kernels;
    es_pool *pool;
    uint8_t *memory;
    int64_t n_units; // of UNIT_BYTES
    atomic_ullong sink;
    atomic_llong n_operations;
};

es_status es_meter_create(const char *kernels, int32_t n_threads, int64_t n_bytes, es_meter **out) {
    if (out == NULL) {
        return ES_ERR_NULL;
    }
    if (n_threads < 1 || n_bytes < UNIT_BYTES) {
        return ES_ERR_RANGE;
    }
    const es_kernels *set = es_kernels_select(kernels);
    if (set == NULL) {
        return ES_ERR_KERNELS;
    }
    es_meter *meter = calloc(1, sizeof *meter);
    if (meter == NULL) {
        return ES_ERR_MEMORY;
    }
    es_status status = ES_ERR_MEMORY;
    meter->kernels = set;
    meter->n_units = n_bytes / UNIT_BYTES;
    const size_t size = (size_t)(meter->n_units * UNIT_BYTES);
    meter->memory = es_os_pages(size, 1);
    if (meter->memory == NULL) {
        goto fail;
    }
    for (size_t i = 0; i < size; i += LINE) {
        meter->memory[i] = 1; // or every page would be the system's one page of zeros
    }
    if ((status = es_pool_create(n_threads, &meter->pool)) != ES_OK) {
        goto fail;
    }
    *out = meter;
    return ES_OK;
fail:
    es_meter_free(meter);
    return status;
}

void es_meter_free(es_meter *meter) {
    if (meter != NULL) {
        es_pool_free(meter->pool);
        if (meter->memory != NULL) {
            es_os_pages_free(meter->memory, (size_t)(meter->n_units * UNIT_BYTES));
        }
        free(meter);
    }
}

static void read_units(void *context, int64_t first, int64_t end, int32_t worker) {
    es_meter *meter = context;
    (void)worker;
    uint64_t sums[LINE_WORDS] = {0}; // or adding up would take longer than reading
    for (int64_t unit = first; unit < end; unit++) {
        const uint64_t *words = (const uint64_t *)(meter->memory + unit * UNIT_BYTES);
        for (int64_t at = 0; at < STREAM_WORDS; at += LINE_WORDS) {
            for (int s = 0; s < STREAMS; s++) {
                for (int i = 0; i < LINE_WORDS; i++) {
                    sums[i] ^= words[s * STREAM_WORDS + at + i];
                }
            }
        }
    }
    for (int i = 0; i < LINE_WORDS; i++) {
        atomic_fetch_xor_explicit(&meter->sink, sums[i], memory_order_relaxed);
    }
}

double es_meter_read(es_meter *meter) {
    const uint64_t start = es_os_nanoseconds();
    es_pool_run(meter->pool, read_units, meter, meter->n_units, 1);
    const uint64_t elapsed = es_os_nanoseconds() - start;
    return (double)(meter->n_units * UNIT_BYTES) / (double)elapsed * 1e9;
}

static void int8_units(void *context, int64_t first, int64_t end, int32_t worker) {
    es_meter *meter = context;
    (void)worker;
    const int64_t n = meter->kernels->int8_peak((end - first) * ROUNDS);
    atomic_fetch_add_explicit(&meter->n_operations, n, memory_order_relaxed);
}

// The best of several short runs: a limit is what is reached when nothing else runs.
double es_meter_int8(es_meter *meter) {
    const int64_t n_units = (int64_t)es_pool_n_threads(meter->pool) * UNITS_A_THREAD;
    const uint64_t begin = es_os_nanoseconds();
    uint64_t start = begin;
    double best = 0;
    do {
        atomic_store_explicit(&meter->n_operations, 0, memory_order_relaxed);
        es_pool_run(meter->pool, int8_units, meter, n_units, 1);
        const uint64_t end = es_os_nanoseconds();
        const int64_t n = atomic_load_explicit(&meter->n_operations, memory_order_relaxed);
        const double rate = (double)n / (double)(end - start) * 1e9;
        best = rate > best ? rate : best;
        start = end;
    } while (start - begin < LONG_ENOUGH_NS);
    return best;
}
