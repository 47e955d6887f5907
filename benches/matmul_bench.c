// What benches/matmul.py checks and times: products of random weights, by any kernel set and on any
// number of threads, and a plain read of the same memory. A library of its own, never shipped.
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "runtime/os.h"
#include "runtime/threads.h"

#define BENCH __attribute__((visibility("default")))

enum {
    PANELS_A_UNIT = 8,
    CHECKED_PRODUCTS = 1 << 26, // multiplications that ref does in a fraction of a second
};

typedef struct {
    const es_kernels *kernels;
    es_weight *weight;
    es_pool *pool;
    es_activation a;
    int64_t n_rows;
    float *out;
    volatile uint64_t sink;
    atomic_llong n_different;
} bench;

// Activations come quantised by the set itself from `x` (n_rows, n_cols).
BENCH bench *bench_create(const char *set, int32_t type, int64_t n_rows, int64_t n_cols,
                          const void *blocks, size_t n_bytes, int32_t n_threads) {
    bench *b = calloc(1, sizeof *b);
    b->kernels = es_kernels_select(set);
    if (b->kernels == NULL ||
        es_weight_create((es_type)type, n_rows, n_cols, &b->weight) != ES_OK ||
        es_weight_fill(b->weight, 0, n_rows, blocks, n_bytes) != ES_OK ||
        es_pool_create(n_threads, &b->pool) != ES_OK) {
        free(b);
        return NULL;
    }
    return b;
}

BENCH void bench_rows(bench *b, int64_t n_rows, const float *x) {
    const int64_t n = b->weight->n_cols, stride = (n + 255) / 256 * 256;
    float *copy = es_os_pages((size_t)(n_rows * stride) * sizeof *copy, 1);
    int8_t *q = es_os_pages((size_t)(n_rows * stride), 1);
    float *d = es_os_pages((size_t)(n_rows * stride) / 32 * sizeof *d, 0);
    float *s = es_os_pages((size_t)(n_rows * stride) / 32 * sizeof *s, 0);
    int16_t *sums = es_os_pages((size_t)(n_rows * stride) / 16 * sizeof *sums, 0);
    const int wide = es_weight_activation(b->weight->type) == ES_ACT_Q256;
    const int64_t stride_d = stride / (wide ? 256 : 32);
    for (int64_t r = 0; r < n_rows; r++) {
        memcpy(copy + r * stride, x + r * n, (size_t)n * sizeof *copy);
        if (wide) {
            b->kernels->quantize_256(x + r * n, n, q + r * stride, d + r * stride_d,
                                     sums + r * stride / 16);
        } else {
            b->kernels->quantize_32(x + r * n, n, q + r * stride, d + r * stride_d,
                                    s + r * stride_d);
        }
    }
    b->a = (es_activation){copy, q, d, s, sums, stride, stride, stride_d};
    b->n_rows = n_rows;
    b->out = es_os_pages((size_t)(n_rows * b->weight->n_panels * 16) * sizeof *b->out, 1);
}

static void units(void *context, int64_t first, int64_t end, int32_t worker) {
    const bench *b = context;
    (void)worker;
    for (int64_t unit = first; unit < end; unit++) {
        const int64_t panel = unit * PANELS_A_UNIT;
        const int64_t left = b->weight->n_panels - panel;
        b->kernels->matmul(b->weight, panel, left < PANELS_A_UNIT ? left : PANELS_A_UNIT, &b->a,
                           b->n_rows, b->out + panel * 16, b->weight->n_panels * 16);
    }
}

// Seconds of one product.
BENCH double bench_matmul(bench *b) {
    const int64_t n_units = (b->weight->n_panels + PANELS_A_UNIT - 1) / PANELS_A_UNIT;
    const uint64_t start = es_os_nanoseconds();
    es_pool_run(b->pool, units, b, n_units, 1);
    return (double)(es_os_nanoseconds() - start) * 1e-9;
}

// (n_rows, ld), ld = 16 * panels.
BENCH const float *bench_out(const bench *b) { return b->out; }
BENCH int64_t bench_ld(const bench *b) { return b->weight->n_panels * 16; }

// How many panels ref computes again: all of them, or as many as it can do soon.
static int64_t n_checked(const bench *b) {
    const int64_t products = 16 * b->weight->n_cols * b->n_rows;
    const int64_t n = CHECKED_PRODUCTS / products + 2;
    return n < b->weight->n_panels ? n : b->weight->n_panels;
}

// Checked panels lie evenly between the first and the last.
static void check_units(void *context, int64_t first, int64_t end, int32_t worker) {
    bench *b = context;
    (void)worker;
    const int64_t n = n_checked(b), ld = b->weight->n_panels * 16;
    float *expected = malloc((size_t)b->n_rows * 16 * sizeof *expected);
    for (int64_t i = first; i < end; i++) {
        const int64_t panel = n > 1 ? i * (b->weight->n_panels - 1) / (n - 1) : 0;
        es_kernels_ref()->matmul(b->weight, panel, 1, &b->a, b->n_rows, expected, 16);
        for (int64_t r = 0; r < b->n_rows; r++) {
            if (memcmp(expected + r * 16, b->out + r * ld + panel * 16, 64) != 0) {
                atomic_fetch_add(&b->n_different, 1);
            }
        }
    }
    free(expected);
}

// How many rows of panels the last product has in other bits than ref's.
BENCH int64_t bench_different(bench *b) {
    atomic_store(&b->n_different, 0);
    es_pool_run(b->pool, check_units, b, n_checked(b), 1);
    return atomic_load(&b->n_different);
}

static void read_units(void *context, int64_t first, int64_t end, int32_t worker) {
    bench *b = context;
    (void)worker;
    const uint64_t *words = (const uint64_t *)(b->weight->data + first * b->weight->panel_bytes);
    const int64_t n = (end - first) * b->weight->panel_bytes / 64;
    uint64_t sums[8] = {0}; // or adding up would take longer than reading
    for (int64_t i = 0; i < n; i++, words += 8) {
        for (int j = 0; j < 8; j++) {
            sums[j] ^= words[j];
        }
    }
    for (int j = 0; j < 8; j++) {
        b->sink ^= sums[j];
    }
}

// Seconds of reading the weight once.
BENCH double bench_read(bench *b) {
    const uint64_t start = es_os_nanoseconds();
    es_pool_run(b->pool, read_units, b, b->weight->n_panels, PANELS_A_UNIT);
    return (double)(es_os_nanoseconds() - start) * 1e-9;
}

BENCH void bench_free(bench *b) {
    if (b != NULL) {
        es_pool_free(b->pool);
        es_weight_free(b->weight);
        free(b); // rows and results live as long as the process: a bench is short
    }
}
