// Every kernel set against ref, bit by bit, over sizes and values of every sort. Prints what a set
// computed as a checksum, so that sets of different processors can be compared too.
//   kernels_test          checks; the last line is "N passed, N failed"
//   kernels_test quick    the same with fewer sizes, for slow emulators
//   kernels_test sets     names the kernel sets that this processor runs
#include <stdlib.h>

#include "kernels/kernels.h"
#include "tests/check.h"

enum { MOST = 1100, GUARD = 32 };

static int is_quick;

static const char *const set_names[] = {"avx512", "avxvnni", "avx2", "i8mm", "neon", "ref"};

// What a kernel wrote, from all of its cases: bytes, with every NaN the same.
typedef struct {
    uint8_t bytes[1 << 17];
    size_t n_bytes;
} record;

static void put_bytes(record *to, const void *data, size_t n_bytes) {
    if (to->n_bytes + n_bytes > sizeof to->bytes) {
        fprintf(stderr, "a record is too small\n");
        exit(2);
    }
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
}

// Which NaN comes out of an operation is the processor's choice: one stands for all.
static void put_floats(record *to, const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const float value = isnan(x[i]) ? NAN : x[i];
        put_bytes(to, &value, sizeof value);
    }
}

static void put_halfs(record *to, const uint16_t *x, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const uint16_t value = (x[i] & 0x7fff) > 0x7c00 ? 0x7e00 : x[i];
        put_bytes(to, &value, sizeof value);
    }
}

// One case: n elements of one kind, the inputs drawn from `source`, the outputs put down.
typedef void run_case(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                      record *out);

// --- rows ----------------------------------------------------------------------------------------

// Inputs and an output of one case. What lies past n must not come in, nor be written.
typedef struct {
    float a[MOST + GUARD];
    float b[MOST + GUARD];
    float out[MOST + GUARD];
} row_buffers;

static row_buffers row;

static void draw_row(random_source *source, float_kind kind, int64_t n) {
    for (int64_t i = 0; i < MOST + GUARD; i++) {
        row.a[i] = row.b[i] = NAN;
        row.out[i] = 12345.0f;
    }
    random_floats(source, kind, n, row.a);
    random_floats(source, kind, n, row.b);
}

static void run_rms_norm(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                         record *out) {
    draw_row(source, kind, n);
    k->rms_norm(row.a, row.b, n, 1e-5f, row.out);
    put_floats(out, row.out, n + GUARD);
    k->rms_norm(row.a, row.b, n, 1e-5f, row.a); // in place
    put_floats(out, row.a, n);
}

#define RUN_GATED(name)                                                                            \
    static void run_##name(const es_kernels *k, random_source *source, float_kind kind, int64_t n, \
                           record *out) {                                                          \
        draw_row(source, kind, n);                                                                 \
        k->name(row.a, row.b, n, row.out);                                                         \
        put_floats(out, row.out, n + GUARD);                                                       \
        k->name(row.a, row.b, n, row.b);                                                           \
        put_floats(out, row.b, n);                                                                 \
    }
RUN_GATED(add)
RUN_GATED(gated_silu)
RUN_GATED(gated_gelu_tanh)
RUN_GATED(gated_relu_squared)

static void run_scale(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                      record *out) {
    draw_row(source, kind, n);
    k->scale(row.a, 0.3f, n, row.out);
    put_floats(out, row.out, n + GUARD);
}

static void run_add_scaled(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                           record *out) {
    draw_row(source, kind, n);
    k->add_scaled(row.a, -0.7f, n, row.b);
    put_floats(out, row.b, n + GUARD);
}

static void run_soft_cap(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                         record *out) {
    draw_row(source, kind, n);
    k->soft_cap(row.a, 2.5f, n, row.out);
    put_floats(out, row.out, n + GUARD);
}

static void run_rope(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                     record *out) {
    draw_row(source, kind, n);
    const int64_t n_pairs = n / 2;
    k->rope_halves(row.a, row.b, n_pairs);
    put_floats(out, row.a, n + GUARD);
    draw_row(source, kind, n);
    k->rope_interleaved(row.a, row.b, n_pairs);
    put_floats(out, row.a, n + GUARD);
}

static void run_quantize(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                         record *out) {
    int8_t q[MOST + 256];
    float d[MOST / 32 + 1], s[MOST / 32 + 1];
    int16_t sums[MOST / 16 + 17];
    draw_row(source, kind, n);
    const float tiny = n % 3 == 0 ? 1e-32f : 1.0f; // blocks of next to nothing
    for (int64_t i = 0; i < n && i < 32; i++) {
        row.a[i] *= tiny;
    }
    const int64_t n_32 = (n + 31) / 32, n_256 = (n + 255) / 256;
    k->quantize_32(row.a, n, q, d, s);
    put_bytes(out, q, (size_t)n_32 * 32);
    put_floats(out, d, n_32);
    put_floats(out, s, n_32);
    k->quantize_256(row.a, n, q, d, sums);
    put_bytes(out, q, (size_t)n_256 * 256);
    put_floats(out, d, n_256);
    put_bytes(out, sums, (size_t)n_256 * 16 * sizeof *sums);
}

static void run_argmax(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                       record *out) {
    draw_row(source, kind, n);
    for (int repeat = 0; repeat < 2; repeat++) {
        int64_t index;
        float value;
        int32_t is_finite;
        k->argmax(row.a, n, &index, &value, &is_finite);
        put_bytes(out, &index, sizeof index);
        put_floats(out, &value, 1);
        put_bytes(out, &is_finite, sizeof is_finite);
        for (int64_t i = 0; i < n; i++) { // again, with equals
            row.a[i] = (float)random_below(source, 3) - (n % 2 == 0 ? 1.0f : INFINITY);
        }
    }
}

static void run_sum_exp(const es_kernels *k, random_source *source, float_kind kind, int64_t n,
                        record *out) {
    draw_row(source, kind, n);
    const float sums[2] = {k->sum_exp(row.a, n, 8.0f), k->sum_exp(row.a, n, -60.0f)};
    put_floats(out, sums, 2);
}

// The whole block is put down: a token writes its own bytes and no others.
static void run_store(es_kv_type type, const es_kernels *k, random_source *source, float_kind kind,
                      int64_t n, record *out) {
    static uint16_t block[ES_HEAD_MAX * ES_KV_BLOCK];
    const int64_t size = n < ES_HEAD_MAX ? n : ES_HEAD_MAX;
    const int64_t n_halfs = es_kv_block_bytes(type, size) / 2;
    draw_row(source, kind, size);
    for (int64_t i = 0; i < size; i++) { // down to where halfs are subnormal, and below
        const int64_t part = type == ES_KV_F16 ? i : i / ES_KV_GROUP;
        row.a[i] *= part % 3 == 0 ? 1.0f : part % 3 == 1 ? 0x1p-16f : 0x1p-25f;
    }
    memset(block, 0x55, sizeof block);
    k->store_key(type, row.a, size, block, random_below(source, ES_KV_BLOCK));
    put_halfs(out, block, n_halfs);
    memset(block, 0x55, sizeof block);
    k->store_value(type, row.a, size, block, random_below(source, ES_KV_BLOCK));
    put_halfs(out, block, n_halfs);
}

// --- attention -----------------------------------------------------------------------------------

enum { N_BLOCKS = 40, QUERIES = 12 };

// A pool of scattered blocks, of which queries see positions [first, end) and no more.
typedef struct {
    _Alignas(64) uint8_t keys[N_BLOCKS * ES_HEAD_MAX * ES_KV_BLOCK * 2];
    _Alignas(64) uint8_t values[N_BLOCKS * ES_HEAD_MAX * ES_KV_BLOCK * 2];
    int32_t table[N_BLOCKS];
    float q[QUERIES * ES_HEAD_MAX];
    float o[QUERIES][ES_HEAD_MAX + GUARD];
    float merged[ES_HEAD_MAX];
    es_attention_cache cache;
    es_attention_query queries[QUERIES];
    int32_t first;
    int32_t end;
    es_attention_partial partials[QUERIES];
} attention_case;

static attention_case attention;

static const int32_t head_sizes[][2] = {{64, 64},  {128, 128}, {256, 256}, {80, 80},   {96, 96},
                                        {112, 64}, {32, 48},   {16, 16},   {192, 128}, {100, 100},
                                        {33, 17},  {1, 1},     {72, 72}};
enum { N_HEAD_SIZES = sizeof head_sizes / sizeof head_sizes[0] };

static void draw_attention(es_kv_type type, random_source *source, int64_t n, float_kind kind) {
    es_attention_cache *cache = &attention.cache;
    for (int32_t i = 0; i < N_BLOCKS; i++) {
        attention.table[i] = N_BLOCKS - 1 - i;
    }
    for (int32_t i = N_BLOCKS - 1; i > 0; i--) {
        const int64_t j = random_below(source, i + 1);
        const int32_t other = attention.table[j];
        attention.table[j] = attention.table[i];
        attention.table[i] = other;
    }
    const int32_t *sizes = head_sizes[n % N_HEAD_SIZES];
    attention.end = (int32_t)random_below(source, N_BLOCKS * ES_KV_BLOCK) + 1;
    attention.first = n % 2 == 0 ? 0 : (int32_t)random_below(source, attention.end);
    *cache = (es_attention_cache){
        .k_pool = attention.keys,
        .v_pool = attention.values,
        .table = attention.table,
        .key_size = sizes[0],
        .value_size = sizes[1],
        .scale = 0.125f,
        .soft_cap = n % 5 == 4 ? 20.0f : 0.0f,
        .type = type,
    };
    random_floats(source, kind == SPECIAL ? SPECIAL : TAME, QUERIES * cache->key_size, attention.q);
    for (int i = 0; i < QUERIES; i++) {
        attention.queries[i] =
            (es_attention_query){attention.q + i * cache->key_size, attention.first, attention.end};
    }
}

// Each query sees some of what all see together: a token, or rows of a prompt, or anything.
static void vary_queries(random_source *source) {
    const int32_t n = attention.end - attention.first;
    const int32_t spread = random_below(source, 3) == 0 ? n : n < 20 ? n : 20;
    for (int i = 0; i < QUERIES; i++) {
        es_attention_query *query = &attention.queries[i];
        query->first += (int32_t)random_below(source, spread);
        query->end -= (int32_t)random_below(source, spread);
        query->end = query->end > query->first ? query->end : query->first + 1;
    }
}

// Up to 4 in size.
static uint16_t small_half(uint64_t bits) {
    return (uint16_t)((bits >> 16 & 0x8000) | bits % 0x4400);
}

static void fill_halfs(int32_t position, random_source *source) {
    const es_attention_cache *cache = &attention.cache;
    const int64_t block = attention.table[position / ES_KV_BLOCK];
    const int64_t slot = position % ES_KV_BLOCK;
    uint16_t *k = (uint16_t *)attention.keys + block * cache->key_size * ES_KV_BLOCK + slot;
    uint16_t *v = (uint16_t *)attention.values + (block * ES_KV_BLOCK + slot) * cache->value_size;
    for (int32_t i = 0; i < cache->key_size || i < cache->value_size; i++) {
        const uint64_t bits = random_bits(source);
        if (i < cache->key_size) {
            k[i * ES_KV_BLOCK] = small_half(bits);
        }
        if (i < cache->value_size) {
            v[i] = small_half(bits >> 20);
        }
    }
}

static void fill_integers(int32_t position, random_source *source) {
    const es_attention_cache *cache = &attention.cache;
    const int64_t block = attention.table[position / ES_KV_BLOCK];
    float x[ES_HEAD_MAX];
    random_floats(source, TAME, cache->key_size, x);
    uint8_t *keys = attention.keys + block * es_kv_block_bytes(cache->type, cache->key_size);
    es_kernels_ref()->store_key(cache->type, x, cache->key_size, keys, position % ES_KV_BLOCK);
    random_floats(source, TAME, cache->value_size, x);
    uint8_t *values = attention.values + block * es_kv_block_bytes(cache->type, cache->value_size);
    es_kernels_ref()->store_value(cache->type, x, cache->value_size, values,
                                  position % ES_KV_BLOCK);
}

// Puts `poison` where a slot's halfs are: its elements, or its scales.
static void poison_slot(int32_t position, uint16_t poison) {
    const es_attention_cache *cache = &attention.cache;
    const int64_t block = attention.table[position / ES_KV_BLOCK];
    const int64_t slot = position % ES_KV_BLOCK;
    const int64_t k_bytes = es_kv_block_bytes(cache->type, cache->key_size);
    const int64_t v_bytes = es_kv_block_bytes(cache->type, cache->value_size);
    uint16_t *k = (uint16_t *)(attention.keys + block * k_bytes);
    uint16_t *v = (uint16_t *)(attention.values + block * v_bytes);
    const int halfs = cache->type == ES_KV_F16;
    const int64_t n_keys = halfs ? cache->key_size : es_kv_groups(cache->key_size);
    const int64_t n_values = halfs ? cache->value_size : es_kv_groups(cache->value_size);
    for (int64_t i = 0; i < n_keys; i++) {
        k[i * ES_KV_BLOCK + slot] = poison;
    }
    for (int64_t i = 0; i < n_values; i++) {
        v[halfs ? slot * n_values + i : i * ES_KV_BLOCK + slot] = poison;
    }
}

// Fills all slots at random, then those that are not visible with `poison`.
static void fill_pools(uint64_t seed, uint16_t poison) {
    random_source source = {seed};
    for (int32_t position = 0; position < N_BLOCKS * ES_KV_BLOCK; position++) {
        if (attention.cache.type == ES_KV_F16) {
            fill_halfs(position, &source);
        } else {
            fill_integers(position, &source);
        }
        if (position < attention.first || position >= attention.end) {
            poison_slot(position, poison);
        }
    }
}

static void put_partials(record *out, int64_t n_queries) {
    for (int64_t i = 0; i < n_queries; i++) {
        put_floats(out, &attention.partials[i].m, 1);
        put_floats(out, &attention.partials[i].l, 1);
        put_floats(out, attention.o[i], attention.cache.value_size + GUARD);
    }
}

static void run_chunk(const es_kernels *k, int64_t chunk, const es_attention_query *queries,
                      int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < ES_HEAD_MAX + GUARD; j++) {
            attention.o[i][j] = 12345.0f;
        }
        attention.partials[i] = (es_attention_partial){5.0f, 5.0f, attention.o[i]};
    }
    k->attention_chunk(&attention.cache, chunk, queries, n, attention.partials);
}

// Partials of every chunk, the one past the end too, for 1 to 12 queries; and the first query's
// merged from left to right.
static void run_attention(es_kv_type type, const es_kernels *k, random_source *source,
                          float_kind kind, int64_t n, record *out) {
    draw_attention(type, source, n, kind);
    fill_pools((uint64_t)n, 0x7e00);
    const int64_t n_queries = n % QUERIES + 1;
    es_attention_partial merged = {-INFINITY, 0.0f, attention.merged};
    memset(attention.merged, 0, sizeof attention.merged);
    const int64_t last = (attention.end - 1) / ES_KV_CHUNK;
    for (int64_t chunk = 0; chunk <= last + 1; chunk++) {
        run_chunk(k, chunk, attention.queries, n_queries);
        if (chunk <= 1 || chunk >= last) {
            put_partials(out, n_queries);
        }
        k->attention_merge(&merged, attention.partials, 1, attention.cache.value_size);
    }
    put_floats(out, &merged.m, 1);
    put_floats(out, &merged.l, 1);
    k->attention_finish(&merged, attention.cache.value_size, attention.merged);
    put_floats(out, attention.merged, attention.cache.value_size);
}

#define RUN_KV(name, type)                                                                         \
    static void run_store_##name(const es_kernels *k, random_source *source, float_kind kind,      \
                                 int64_t n, record *out) {                                         \
        run_store(type, k, source, kind, n, out);                                                  \
    }                                                                                              \
    static void run_attention_##name(const es_kernels *k, random_source *source, float_kind kind,  \
                                     int64_t n, record *out) {                                     \
        run_attention(type, k, source, kind, n, out);                                              \
    }
// Queries that each see something else, of every type.
static void run_attention_rows(const es_kernels *k, random_source *source, float_kind kind,
                               int64_t n, record *out) {
    draw_attention((es_kv_type)(n % 3), source, n, kind);
    vary_queries(source);
    fill_pools((uint64_t)n, 0x7e00);
    const int64_t n_queries = n % QUERIES + 1;
    const int64_t last = (attention.end - 1) / ES_KV_CHUNK;
    for (int64_t chunk = attention.first / ES_KV_CHUNK; chunk <= last; chunk++) {
        run_chunk(k, chunk, attention.queries, n_queries);
        if (chunk <= 1 || chunk >= last) {
            put_partials(out, n_queries);
        }
    }
}

RUN_KV(f16, ES_KV_F16)
RUN_KV(q8_0, ES_KV_Q8_0)
RUN_KV(q4_0, ES_KV_Q4_0)

// --- sets against ref ----------------------------------------------------------------------------

static const struct {
    const char *name;
    run_case *run;
} cases[] = {
    {"rms_norm", run_rms_norm},
    {"add", run_add},
    {"scale", run_scale},
    {"add_scaled", run_add_scaled},
    {"gated_silu", run_gated_silu},
    {"gated_gelu_tanh", run_gated_gelu_tanh},
    {"gated_relu_squared", run_gated_relu_squared},
    {"soft_cap", run_soft_cap},
    {"rope", run_rope},
    {"quantize", run_quantize},
    {"argmax", run_argmax},
    {"sum_exp", run_sum_exp},
    {"store", run_store_f16},
    {"attention", run_attention_f16},
    {"store_q8_0", run_store_q8_0},
    {"attention_q8_0", run_attention_q8_0},
    {"store_q4_0", run_store_q4_0},
    {"attention_q4_0", run_attention_q4_0},
    {"attention_rows", run_attention_rows},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static uint64_t add_to_checksum(uint64_t checksum, const record *r) { // FNV-1a
    for (size_t i = 0; i < r->n_bytes; i++) {
        checksum = (checksum ^ r->bytes[i]) * 0x100000001b3u;
    }
    return checksum;
}

static void compare_with_ref(const es_kernels *k, int c) {
    static const int64_t odd_sizes[] = {96, 127, 255, 256, 257, 511, 576, 1024, 1025};
    static record ours, refs;
    uint64_t checksum = 0xcbf29ce484222325u;
    const int64_t n_sizes = 70 + (int64_t)(sizeof odd_sizes / sizeof odd_sizes[0]);
    for (int64_t i = 1; i <= n_sizes; i += is_quick ? 13 : 1) {
        const int64_t n = i <= 70 ? i : odd_sizes[i - 71];
        for (int kind = 0; kind < N_KINDS; kind++) {
            const uint64_t seed = (uint64_t)(n * N_KINDS + kind);
            ours.n_bytes = refs.n_bytes = 0;
            cases[c].run(k, &(random_source){seed}, (float_kind)kind, n, &ours);
            cases[c].run(es_kernels_ref(), &(random_source){seed}, (float_kind)kind, n, &refs);
            CHECK(ours.n_bytes == refs.n_bytes && memcmp(ours.bytes, refs.bytes, ours.n_bytes) == 0,
                  "%s differs from ref in %s, n = %d, kind %d", k->name, cases[c].name, (int)n,
                  kind);
            checksum = add_to_checksum(checksum, &ours);
        }
    }
    printf("%s %s %016llx\n", k->name, cases[c].name, (unsigned long long)checksum);
}

// Every half, and the floats around each boundary between two of them.
static void compare_halfs(const es_kernels *k) {
    static const uint32_t offsets[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x1fff};
    float x[16];
    uint16_t ours[16], refs[16];
    int n_different = 0;
    for (uint32_t high = 0; high < 1u << 19; high += 16) {
        for (size_t j = 0; j < sizeof offsets / sizeof offsets[0]; j++) {
            for (uint32_t i = 0; i < 16; i++) {
                const uint32_t bits = (high + i) << 13 | offsets[j];
                memcpy(&x[i], &bits, sizeof bits);
            }
            k->store_value(ES_KV_F16, x, 16, ours, 0);
            es_kernels_ref()->store_value(ES_KV_F16, x, 16, refs, 0);
            for (int i = 0; i < 16; i++) {
                n_different += ours[i] != refs[i] && !isnan(x[i]);
            }
        }
    }
    CHECK(n_different == 0, "%s rounds %d floats to other halfs than ref", k->name, n_different);
}

// --- the attention laws --------------------------------------------------------------------------

static void check_attention_laws(const es_kernels *k, es_kv_type type, int64_t n) {
    static record together, alone, poisoned;
    random_source source = {(uint64_t)n};
    draw_attention(type, &source, n, TAME);
    vary_queries(&source);
    fill_pools((uint64_t)n, 0x7e00);
    const int64_t n_chunks = (attention.end + ES_KV_CHUNK - 1) / ES_KV_CHUNK;
    const int64_t chunk = random_below(&source, n_chunks);
    const int64_t n_queries = n % QUERIES + 1;
    together.n_bytes = alone.n_bytes = poisoned.n_bytes = 0;
    run_chunk(k, chunk, attention.queries, n_queries);
    put_partials(&together, n_queries);
    const es_attention_partial first = attention.partials[0];
    const float first_o = attention.o[0][0];

    for (int64_t i = 0; i < n_queries; i++) {
        run_chunk(k, chunk, attention.queries + i, 1);
        put_partials(&alone, 1);
    }
    CHECK(memcmp(together.bytes, alone.bytes, together.n_bytes) == 0,
          "%s: %d queries together differ from one by one", k->name, (int)n_queries);

    // A query reads its own visible slots of a chunk and nothing else.
    const es_attention_query *query = &attention.queries[0];
    const int32_t start = (int32_t)chunk * ES_KV_CHUNK;
    const int32_t from = query->first > start ? query->first : start;
    const int32_t end = query->end < start + ES_KV_CHUNK ? query->end : start + ES_KV_CHUNK;
    CHECK(from < end || (first.l == 0.0f && first.m == -INFINITY && first_o == 0.0f),
          "%s: a chunk that is not seen is not empty", k->name);
    for (int32_t p = 0; p < N_BLOCKS * ES_KV_BLOCK; p++) {
        if (p < from || p >= end) {
            poison_slot(p, 0xfc00);
        }
    }
    run_chunk(k, chunk, attention.queries, n_queries);
    put_partials(&poisoned, 1);
    CHECK(memcmp(together.bytes, poisoned.bytes, poisoned.n_bytes) == 0,
          "%s: slots that are not visible change a partial", k->name);
}

static void check_merging(const es_kernels *k) {
    float a_o[20], b_o[20], before[20];
    random_source source = {7};
    random_floats(&source, TAME, 20, a_o);
    memcpy(before, a_o, sizeof before);
    random_floats(&source, TAME, 20, b_o);
    es_attention_partial a = {3.0f, 2.0f, a_o};
    const es_attention_partial empty = {-INFINITY, 0.0f, (float[20]){0}};
    k->attention_merge(&a, &empty, 1, 20);
    CHECK(a.m == 3.0f && a.l == 2.0f && memcmp(a_o, before, sizeof before) == 0,
          "%s: an empty partial changes another", k->name);
    const es_attention_partial b = {1.0f, 1.5f, b_o};
    es_attention_partial from_empty = {-INFINITY, 0.0f, (float[20]){0}};
    k->attention_merge(&from_empty, &b, 1, 20);
    CHECK(from_empty.m == 1.0f && from_empty.l == 1.5f &&
              memcmp(from_empty.o, b_o, sizeof b_o) == 0,
          "%s: merging into an empty partial is no copy", k->name);
    const es_attention_partial broken = {NAN, NAN, b_o};
    k->attention_merge(&a, &broken, 1, 20);
    CHECK(isnan(a.l) && isnan(a_o[0]), "%s: a NaN partial is lost in merging", k->name);
}

static void check_argmax(const es_kernels *k) {
    float x[40];
    int64_t index;
    float value;
    int32_t is_finite;
    for (int i = 0; i < 40; i++) {
        x[i] = -2.0f;
    }
    x[37] = x[21] = x[5] = 3.0f;
    k->argmax(x, 40, &index, &value, &is_finite);
    CHECK(index == 5 && value == 3.0f && is_finite == 1, "%s: argmax of equals", k->name);
    x[39] = NAN;
    k->argmax(x, 40, &index, &value, &is_finite);
    CHECK(index == 5 && is_finite == 0, "%s: argmax does not see NaN", k->name);
    x[39] = INFINITY;
    k->argmax(x, 40, &index, &value, &is_finite);
    CHECK(index == 39 && is_finite == 0, "%s: argmax does not see infinity", k->name);
    for (int i = 0; i < 40; i++) {
        x[i] = -INFINITY;
    }
    k->argmax(x, 40, &index, &value, &is_finite);
    CHECK(index == 0 && is_finite == 0, "%s: all -infinity passes for finite", k->name);
    x[33] = -1e30f;
    k->argmax(x, 40, &index, &value, &is_finite);
    CHECK(index == 33 && value == -1e30f && is_finite == 1, "%s: banned tokens", k->name);
}

static void check_quantize(const es_kernels *k) {
    float x[256], d[8], s[8];
    int8_t q[256];
    int16_t sums[16];
    for (int i = 0; i < 256; i++) {
        x[i] = (float)(i % 255 - 127);
    }
    x[32] = NAN;
    x[64] = -INFINITY;
    memset(x + 96, 0, 32 * sizeof *x);
    x[100] = 9e-31f;
    k->quantize_32(x, 256, q, d, s);
    CHECK(d[0] == 1.0f && q[0] == -127 && q[31] == -96 && s[0] == -3568.0f, "%s: Q32", k->name);
    CHECK(isnan(d[1]) && q[33] == 0 && s[1] == 0.0f, "%s: Q32 hides NaN", k->name);
    CHECK(isnan(d[2]) && q[64] == 0 && s[2] == 0.0f, "%s: Q32 hides infinity", k->name);
    CHECK(d[3] == 0.0f && q[100] == 0 && s[3] == 0.0f, "%s: Q32 of next to nothing", k->name);
    k->quantize_256(x, 256, q, d, sums);
    CHECK(isnan(d[0]) && q[255] == 0 && sums[15] == 0, "%s: Q256 hides NaN", k->name);
    x[32] = x[64] = 0.0f;
    k->quantize_256(x, 256, q, d, sums);
    CHECK(d[0] == 1.0f && q[255] == -127 && sums[0] == -1912, "%s: Q256", k->name);
}

static void check_set(const es_kernels *k) {
    for (int c = 0; c < N_CASES; c++) {
        compare_with_ref(k, c);
    }
    if (!is_quick) {
        compare_halfs(k);
    }
    for (int64_t n = 0; n < (is_quick ? 13 : 200); n++) {
        check_attention_laws(k, ES_KV_F16, n);
        check_attention_laws(k, ES_KV_Q8_0, n);
        check_attention_laws(k, ES_KV_Q4_0, n);
    }
    check_merging(k);
    check_argmax(k);
    check_quantize(k);
}

int main(int n_arguments, char **arguments) {
    const int only_names = n_arguments > 1 && strcmp(arguments[1], "sets") == 0;
    is_quick = n_arguments > 1 && strcmp(arguments[1], "quick") == 0;
    for (size_t i = 0; i < sizeof set_names / sizeof set_names[0]; i++) {
        const es_kernels *k = es_kernels_select(set_names[i]);
        if (k == NULL) {
            continue;
        }
        if (only_names) {
            printf("%s\n", k->name);
            continue;
        }
        CHECK(strcmp(k->name, set_names[i]) == 0, "%s is called %s", set_names[i], k->name);
        check_set(k);
    }
    if (only_names) {
        return 0;
    }
    CHECK(es_kernels_select("none") == NULL, "a set that is none");
    CHECK(es_kernels_select(NULL) != NULL, "no set at all");
    return report();
}
