// What benches/attention.py checks and times: attention alone, as a step runs it, over a cache
// whose blocks lie scattered, and a plain read of the same memory. A library of its own, never
// shipped.
#define _POSIX_C_SOURCE 200809L // clock_gettime
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/executor.h"
#include "runtime/os.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define BENCH __attribute__((visibility("default")))

enum { SLOT_Q, SLOT_OUT, SLOT_LOGITS, N_SLOTS };
enum { MOST_LAYERS = 256 };

typedef struct {
    es_executor *executor;
    es_batch batch;
    int32_t *positions;
    int32_t *tokens;
    int32_t *table;
    int32_t first_row[2];
    int32_t n_logits_rows[1];
    int32_t n_hidden_rows[1];
    int32_t n_threads;
    int32_t n_layers;
    int64_t n_units; // of a layer that bench_read reads
    volatile uint64_t sink;
} bench;

typedef struct {
    int32_t type; // es_kv_type
    int32_t n_kv_heads;
    int32_t n_heads;
    int32_t head_size;
    int32_t depth; // positions before the first row
    int32_t n_rows;
    int32_t n_threads;
    int32_t n_layers; // alike, each with a cache of its own: what a step reads is in no cache
} bench_shape;

static uint64_t random_bits(uint64_t *state) { // splitmix64
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

// Uniform in [-1, 1).
static float random_float(uint64_t *state) {
    return (float)((int64_t)(random_bits(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

static es_executor *make_executor(const char *set, const bench_shape *shape, int32_t n_blocks) {
    const int32_t widths[N_SLOTS] = {shape->n_heads * shape->head_size,
                                     shape->n_heads * shape->head_size, 1};
    es_region regions[MOST_LAYERS];
    es_attention attentions[MOST_LAYERS];
    es_cache caches[MOST_LAYERS];
    for (int32_t i = 0; i < shape->n_layers; i++) {
        regions[i] = (es_region){.kind = ES_REGION_ATTENTION,
                                 .first = i,
                                 .count = 1,
                                 .rows = ES_ROWS_TOKENS,
                                 .x = -1,
                                 .norm = -1,
                                 .route = -1};
        attentions[i] = (es_attention){SLOT_Q, SLOT_OUT, i, shape->n_heads, 0, -1, 0.125f, 0.0f};
        caches[i] =
            (es_cache){0, shape->n_kv_heads, shape->head_size, shape->head_size, shape->type};
    }
    const es_plan plan = {
        .slot_widths = widths,
        .regions = regions,
        .row_ops = &(es_row_op){0},
        .linears = &(es_linear){0},
        .attentions = attentions,
        .vectors = &(es_vector){0},
        .ropes = &(es_rope){0},
        .caches = caches,
        .weights = &(es_weight *){NULL},
        .n_slots = N_SLOTS,
        .n_regions = shape->n_layers,
        .n_attentions = shape->n_layers,
        .n_caches = shape->n_layers,
        .n_cache_groups = 1,
        .logits = SLOT_LOGITS,
        .vocab_size = 1,
        .max_rows = shape->n_rows,
        .max_position = n_blocks * ES_KV_BLOCK,
    };
    es_executor *executor = NULL;
    es_executor_create(&plan, shape->n_threads, set, n_blocks, &executor);
    return executor;
}

// Random keys and values for all positions, stored by the set itself.
static void fill(bench *b, const bench_shape *shape, int32_t n_positions) {
    es_executor *executor = b->executor;
    const es_cache_pool *pool = &executor->caches[0];
    uint64_t state = 1;
    float x[ES_HEAD_MAX];
    for (int32_t position = 0; position < n_positions; position++) {
        const int32_t block = b->table[position / ES_KV_BLOCK];
        for (int32_t head = 0; head < shape->n_kv_heads; head++) {
            for (int part = 0; part < 2; part++) {
                for (int32_t d = 0; d < shape->head_size; d++) {
                    x[d] = random_float(&state);
                }
                void *into = part == 0 ? es_key_block(executor, pool, head, block)
                                       : es_value_block(executor, pool, head, block);
                (part == 0 ? executor->kernels->store_key : executor->kernels->store_value)(
                    (es_kv_type)shape->type, x, shape->head_size, into, position % ES_KV_BLOCK);
            }
        }
    }
    for (int32_t i = 1; i < shape->n_layers; i++) {
        memcpy(executor->caches[i].keys, pool->keys, pool->key_bytes);
        memcpy(executor->caches[i].values, pool->values, pool->value_bytes);
    }
    for (int32_t row = 0; row < shape->n_rows; row++) {
        float *q = es_slot_row(executor, SLOT_Q, row);
        for (int32_t i = 0; i < shape->n_heads * shape->head_size; i++) {
            q[i] = 4.0f * random_float(&state);
        }
    }
}

// NULL where this processor has no such set, or for more than MOST_LAYERS. Equal shapes get equal
// contents.
BENCH bench *bench_create(const char *set, const bench_shape *shape) {
    const int32_t n_positions = shape->depth + shape->n_rows;
    const int32_t n_blocks = (n_positions + ES_KV_BLOCK - 1) / ES_KV_BLOCK;
    bench *b = calloc(1, sizeof *b);
    b->n_layers = shape->n_layers;
    b->executor = make_executor(set, shape, n_blocks);
    if (b->executor == NULL) {
        free(b);
        return NULL;
    }
    b->n_threads = shape->n_threads;
    b->positions = calloc((size_t)shape->n_rows, sizeof *b->positions);
    b->tokens = calloc((size_t)shape->n_rows, sizeof *b->tokens);
    b->table = calloc((size_t)n_blocks, sizeof *b->table);
    uint64_t state = 2;
    for (int32_t i = 0; i < n_blocks; i++) { // a random permutation
        const int32_t j = (int32_t)(random_bits(&state) % (uint64_t)(i + 1));
        b->table[i] = b->table[j];
        b->table[j] = i;
    }
    for (int32_t row = 0; row < shape->n_rows; row++) {
        b->positions[row] = shape->depth + row;
    }
    b->first_row[1] = shape->n_rows;
    b->batch = (es_batch){.token_ids = b->tokens,
                          .positions = b->positions,
                          .first_row = b->first_row,
                          .n_logits_rows = b->n_logits_rows,
                          .n_hidden_rows = b->n_hidden_rows,
                          .block_tables = b->table,
                          .n_rows = shape->n_rows,
                          .n_groups = 1,
                          .table_stride = n_blocks};
    fill(b, shape, n_positions);
    return b;
}

static double seconds(const bench *b) {
    if (b->n_threads > 1) {
        return (double)es_os_nanoseconds() * 1e-9;
    }
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

// Seconds of a layer in one step, or less than zero where it failed: of processor time with one
// thread.
BENCH double bench_run(bench *b) {
    const double start = seconds(b);
    const es_status status = es_step(b->executor, &b->batch);
    return status == ES_OK ? (seconds(b) - start) / b->n_layers : -1.0;
}

// How many rows two benches of one shape have in other bits.
BENCH int32_t bench_different(const bench *a, const bench *b) {
    int32_t n = 0;
    const size_t n_bytes = (size_t)a->executor->plan.slot_widths[SLOT_OUT] * sizeof(float);
    for (int32_t row = 0; row < a->batch.n_rows; row++) {
        n += memcmp(es_slot_row(a->executor, SLOT_OUT, row),
                    es_slot_row(b->executor, SLOT_OUT, row), n_bytes) != 0;
    }
    return n;
}

// Bytes of keys and values of a layer.
BENCH int64_t bench_bytes(const bench *b) {
    return (int64_t)(b->executor->caches[0].key_bytes + b->executor->caches[0].value_bytes);
}

enum { LINES_A_UNIT = 1024 };

static void read_units(void *context, int64_t first, int64_t end, int32_t worker) {
    bench *b = context;
    (void)worker;
    uint64_t sums[8] = {0}; // or adding up would take longer than reading
    for (int64_t index = first; index < end; index++) {
        const es_cache_pool *pool = &b->executor->caches[index / b->n_units];
        const int64_t unit = index % b->n_units;
        const int64_t n_keys = (int64_t)pool->key_bytes / 64 / LINES_A_UNIT;
        const uint8_t *from = unit < n_keys ? pool->keys : pool->values;
        const uint64_t *words =
            (const uint64_t *)(from + (unit < n_keys ? unit : unit - n_keys) * 64 * LINES_A_UNIT);
        for (int64_t i = 0; i < LINES_A_UNIT; i++, words += 8) {
            for (int j = 0; j < 8; j++) {
                sums[j] ^= words[j];
            }
        }
    }
    for (int j = 0; j < 8; j++) {
        b->sink ^= sums[j];
    }
}

// Seconds a byte of reading keys and values in the order they lie in.
BENCH double bench_read(bench *b) {
    const es_cache_pool *pool = &b->executor->caches[0];
    const int64_t unit = 64 * LINES_A_UNIT;
    b->n_units = (int64_t)pool->key_bytes / unit + (int64_t)pool->value_bytes / unit;
    const int64_t n = b->n_units * b->n_layers;
    const double start = seconds(b);
    es_pool_run(b->executor->pool, read_units, b, n, 4);
    return (seconds(b) - start) / (double)(n * unit);
}

#if defined(__x86_64__)
typedef __m256 vector;
#define VECTOR_TARGET  __attribute__((target("avx2,fma")))
#define fused(a, b, c) _mm256_fmadd_ps(a, b, c)
#define splat(x)       _mm256_set1_ps(x)
#elif defined(__aarch64__)
typedef float32x4_t vector;
#define VECTOR_TARGET
#define fused(a, b, c) vfmaq_f32(c, a, b)
#define splat(x)       vdupq_n_f32(x)
#endif

// Float operations a second of one thread that does nothing but multiply and add.
VECTOR_TARGET BENCH double bench_peak(void) {
    enum { ROUNDS = 200000, CHAINS = 12 };
    vector sums[CHAINS];
    for (int i = 0; i < CHAINS; i++) {
        sums[i] = splat((float)i);
    }
    const bench one = {.n_threads = 1};
    const vector factor = splat(0.5f);
    const double start = seconds(&one);
    for (int round = 0; round < ROUNDS; round++) {
#pragma GCC unroll 12
        for (int i = 0; i < CHAINS; i++) {
            sums[i] = fused(sums[i], factor, factor);
        }
    }
    const double taken = seconds(&one) - start;
    volatile float used = 0.0f;
    for (int i = 0; i < CHAINS; i++) {
        used += ((const float *)&sums[i])[0];
    }
    return 2.0 * ROUNDS * CHAINS * (double)(sizeof(vector) / sizeof(float)) / taken;
}

BENCH void bench_free(bench *b) {
    if (b != NULL) {
        es_executor_free(b->executor);
        free(b->positions);
        free(b->tokens);
        free(b->table);
        free(b);
    }
}
