// The numerics contract of kernels/kernels.h once more, in plain loops that share nothing with the
// kernels but ref's halfs, which accuracy_test.c checks: element by element, in the order that is
// written there. Bits must be equal.
#include "kernels/kernels.h"
#include "kernels/ref/simd.h"
#include "plan/executor.h"
#include "tests/check.h"

enum { MOST = 600 };

static const es_kernels *k;

static int same(const void *a, const void *b, size_t n_bytes) { return memcmp(a, b, n_bytes) == 0; }

// The polynomial itself is measured in accuracy_test.c.
static float exp_of(float x) { return k->sum_exp(&x, 1, 0.0f); }

// One tree: lane i += lane i + 8, then 4, 2, 1.
static float tree(float *lane) {
    for (int step = 8; step > 0; step /= 2) {
        for (int i = 0; i < step; i++) {
            lane[i] = lane[i] + lane[i + step];
        }
    }
    return lane[0];
}

static void check_rms_norm(int n) {
    float x[MOST], weight[MOST], out[MOST], expected[MOST], lane[16] = {0};
    random_source source = {(uint64_t)n};
    random_floats(&source, TAME, n, x);
    random_floats(&source, TAME, n, weight);
    for (int i = 0; i < n; i++) {
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    }
    const float factor = 1.0f / sqrtf(tree(lane) / (float)n + 1e-6f);
    for (int i = 0; i < n; i++) {
        expected[i] = (x[i] * factor) * weight[i];
    }
    k->rms_norm(x, weight, n, 1e-6f, out);
    CHECK(same(out, expected, (size_t)n * sizeof *out), "rms_norm of %d", n);
}

static void check_sum_exp(int n) {
    float x[MOST], lane[16] = {0};
    random_source source = {(uint64_t)n};
    random_floats(&source, TAME, n, x);
    for (int i = 0; i < n; i++) {
        lane[i % 16] += exp_of(x[i] - 3.0f);
    }
    const float sum = k->sum_exp(x, n, 3.0f), expected = tree(lane);
    CHECK(same(&sum, &expected, sizeof sum), "sum_exp of %d", n);
}

// Angles are products in double: rounded to a float, one of a far position is off by much more.
static void check_rope_tables(void) {
    enum { ROWS = 4, PAIRS = 5, MOST_POSITIONS = 1 << 20 };
    const double frequencies[PAIRS] = {1.0, 0.8253, 0.1, 3.1e-3, 1e-6};
    const es_rope rope = {frequencies, PAIRS, 0, 1.25};
    const int32_t width = 1, positions[ROWS] = {0, 17, 40961, MOST_POSITIONS - 1};
    const int32_t zeros[ROWS] = {0}, first_row[ROWS + 1] = {0, 1, 2, 3, 4};
    const es_plan plan = {&width,
                          &(es_region){0},
                          &(es_row_op){0},
                          &(es_linear){0},
                          &(es_attention){0},
                          &(es_vector){0},
                          &rope,
                          &(es_cache){0},
                          &(es_weight *){NULL},
                          .n_slots = 1,
                          .n_ropes = 1,
                          .vocab_size = 1,
                          .max_rows = ROWS,
                          .max_position = MOST_POSITIONS};
    const es_batch batch = {.token_ids = zeros,
                            .positions = positions,
                            .first_row = first_row,
                            .n_logits_rows = zeros,
                            .n_hidden_rows = zeros,
                            .block_tables = zeros,
                            .n_rows = ROWS,
                            .n_groups = ROWS,
                            .table_stride = MOST_POSITIONS / ES_KV_BLOCK};
    es_executor *executor = NULL;
    CHECK(es_executor_create(&plan, 1, NULL, 1, &executor) == ES_OK, "a plan of rope tables");
    CHECK(es_step(executor, &batch) == ES_OK, "a step of rope tables");
    for (int row = 0; row < ROWS; row++) {
        const float *table = executor->rope_tables[0] + row * 2 * PAIRS;
        for (int i = 0; i < PAIRS; i++) {
            const double angle = positions[row] * frequencies[i];
            const double half_step = rope.magnitude * 0x1p-24;
            CHECK(fabs(table[i] - rope.magnitude * cos(angle)) <= half_step &&
                      fabs(table[PAIRS + i] - rope.magnitude * sin(angle)) <= half_step,
                  "cosine and sine of position %d, pair %d", positions[row], i);
        }
    }
    es_executor_free(executor);
}

static void check_rope(int n_pairs) {
    float x[MOST], cos_sin[MOST], halves[MOST], pairs[MOST];
    random_source source = {(uint64_t)n_pairs};
    random_floats(&source, TAME, 2 * n_pairs, x);
    random_floats(&source, TAME, 2 * n_pairs, cos_sin);
    memcpy(halves, x, sizeof halves);
    memcpy(pairs, x, sizeof pairs);
    k->rope_halves(halves, cos_sin, n_pairs);
    k->rope_interleaved(pairs, cos_sin, n_pairs);
    for (int i = 0; i < n_pairs; i++) {
        const float c = cos_sin[i], s = cos_sin[n_pairs + i];
        const float a = x[i], b = x[n_pairs + i];
        CHECK(halves[i] == fmaf(a, c, -(b * s)) && halves[n_pairs + i] == fmaf(a, s, b * c),
              "rope_halves of %d, pair %d", n_pairs, i);
        const float p = x[2 * i], q = x[2 * i + 1];
        CHECK(pairs[2 * i] == fmaf(p, c, -(q * s)) && pairs[2 * i + 1] == fmaf(p, s, q * c),
              "rope_interleaved of %d, pair %d", n_pairs, i);
    }
}

// Blocks of `size`: d, and q; sums of q over each 16.
static void check_quantize(int size) {
    float x[512], d[16], s[16];
    int8_t q[512];
    int16_t sums[32];
    random_source source = {(uint64_t)size};
    random_floats(&source, TAME, 512, x);
    if (size == 32) {
        k->quantize_32(x, 512, q, d, s);
    } else {
        k->quantize_256(x, 512, q, d, sums);
    }
    for (int block = 0; block < 512 / size; block++) {
        float amax = 0.0f;
        int sum = 0;
        for (int i = block * size; i < (block + 1) * size; i++) {
            amax = amax > fabsf(x[i]) ? amax : fabsf(x[i]);
            sum += q[i];
        }
        CHECK(d[block] == amax / 127.0f, "d of block %d of %d", block, size);
        CHECK(size != 32 || s[block] == (float)sum, "s of block %d", block);
        for (int i = block * size; i < (block + 1) * size; i++) {
            CHECK(q[i] == (int)nearbyintf(x[i] * (127.0f / amax)), "q %d of %d", i, size);
        }
    }
    for (int part = 0; size == 256 && part < 32; part++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) {
            sum += q[16 * part + i];
        }
        CHECK(sums[part] == sum, "sum %d", part);
    }
}

// --- attention -----------------------------------------------------------------------------------

enum { TOKENS = 300, KEY = 80, VALUE = 48, QUERIES = 7 };

// Integers as a KV block of `type` should hold them, times their scale, which halfs hold exactly;
// for f16, the scale is 1 and elements are multiples of 1/8.
typedef struct {
    float key[KEY], value[VALUE];
    float key_scale[(KEY + 31) / 32], value_scale[(VALUE + 31) / 32];
} token;

static token tokens[TOKENS];
static uint8_t key_blocks[(TOKENS + 15) / 16 * 16 * KEY * 2];
static uint8_t value_blocks[(TOKENS + 15) / 16 * 16 * 64 * 2];
static int32_t table[(TOKENS + 15) / 16];

// A group's d and q by the contract, of n elements at x, which become q.
static float expect_group(es_kv_type type, float *x, int n) {
    if (type == ES_KV_F16) {
        return 1.0f;
    }
    float amax = 0.0f, most = x[0], least = x[0];
    for (int i = 0; i < n; i++) {
        amax = amax > fabsf(x[i]) ? amax : fabsf(x[i]);
        most = most > x[i] ? most : x[i];
        least = least < x[i] ? least : x[i];
    }
    const float e = most > -least ? most : least;
    const uint16_t half = scalar_narrow(type == ES_KV_Q8_0 ? amax / 127.0f : e / -8.0f);
    const float d = scalar_widen(half);
    for (int i = 0; i < n; i++) {
        const float q = nearbyintf(x[i] * (1.0f / d));
        x[i] = type == ES_KV_Q8_0 ? fmaxf(fminf(q, 127.0f), -127.0f) : fmaxf(fminf(q, 7.0f), -8.0f);
    }
    return d;
}

static void fill_vector(es_kv_type type, random_source *source, int size, float *x) {
    for (int i = 0; i < size; i++) {
        const float eighths = (float)(random_below(source, 256) - 128) / 8.0f;
        x[i] = type == ES_KV_F16 ? eighths : eighths * (random_unit(source) + 1.0f);
    }
}

static void fill_cache(es_kv_type type) {
    random_source source = {1};
    const int64_t k_bytes = es_kv_block_bytes(type, KEY), v_bytes = es_kv_block_bytes(type, VALUE);
    for (int t = 0; t < TOKENS; t++) {
        token *at = &tokens[t];
        table[t / 16] = (TOKENS + 15) / 16 - 1 - t / 16;
        fill_vector(type, &source, KEY, at->key);
        fill_vector(type, &source, VALUE, at->value);
        k->store_key(type, at->key, KEY, key_blocks + table[t / 16] * k_bytes, t % 16);
        k->store_value(type, at->value, VALUE, value_blocks + table[t / 16] * v_bytes, t % 16);
        for (int d = 0; d < KEY; d += 32) {
            at->key_scale[d / 32] = expect_group(type, at->key + d, KEY - d < 32 ? KEY - d : 32);
        }
        for (int d = 0; d < VALUE; d += 32) {
            const int n = VALUE - d < 32 ? VALUE - d : 32;
            at->value_scale[d / 32] = expect_group(type, at->value + d, n);
        }
    }
}

static float score_of(const es_attention_cache *cache, const float *query, int t) {
    const int group = cache->type == ES_KV_F16 ? KEY : 32;
    float sum = 0.0f;
    for (int first = 0; first < KEY; first += group) {
        float sums[2] = {0.0f, 0.0f};
        for (int d = first; d < first + group && d < KEY; d++) {
            sums[d % 2] = fmaf(tokens[t].key[d], query[d], sums[d % 2]);
        }
        sum = fmaf(tokens[t].key_scale[first / 32], sums[0] + sums[1], sum);
    }
    float score = sum * cache->scale;
    if (cache->soft_cap != 0.0f) {
        k->soft_cap(&score, cache->soft_cap, 1, &score);
    }
    return score;
}

static void expect_chunk(const es_attention_cache *cache, int chunk,
                         const es_attention_query *query, es_attention_partial *out) {
    float lane[16] = {0};
    out->m = -INFINITY;
    memset(out->o, 0, VALUE * sizeof *out->o);
    const int start = chunk * ES_KV_CHUNK;
    const int first = query->first > start ? query->first : start;
    const int end = query->end < start + ES_KV_CHUNK ? query->end : start + ES_KV_CHUNK;
    for (int t = first; t < end; t++) {
        const float score = score_of(cache, query->q, t);
        out->m = out->m > score ? out->m : score;
    }
    for (int t = first; t < end; t++) {
        const float p = exp_of(score_of(cache, query->q, t) - out->m);
        lane[t % 16] += p;
        for (int d = 0; d < VALUE; d++) {
            out->o[d] = fmaf(p * tokens[t].value_scale[d / 32], tokens[t].value[d], out->o[d]);
        }
    }
    out->l = tree(lane);
}

static void expect_merge(es_attention_partial *a, const es_attention_partial *b) {
    if (b->l == 0.0f) {
        return;
    }
    const float m = a->m > b->m ? a->m : b->m;
    const float fa = exp_of(a->m - m), fb = exp_of(b->m - m);
    a->m = m;
    a->l = fmaf(b->l, fb, a->l * fa);
    for (int d = 0; d < VALUE; d++) {
        a->o[d] = fmaf(b->o[d], fb, a->o[d] * fa);
    }
}

static void check_equal(const es_attention_partial *a, const es_attention_partial *b,
                        const char *what, int query) {
    CHECK(same(&a->m, &b->m, sizeof a->m) && same(&a->l, &b->l, sizeof a->l) &&
              same(a->o, b->o, VALUE * sizeof *a->o),
          "%s of query %d", what, query);
}

// Queries as of rows that each see `step` tokens more, and as many less at their beginning.
static void check_queries(es_kv_type type, int32_t first, int32_t end, int32_t step,
                          float soft_cap) {
    const es_attention_cache cache = {key_blocks, value_blocks, table,    KEY,
                                      VALUE,      0.05f,        soft_cap, type};
    es_attention_query seen[QUERIES];
    float queries[QUERIES * KEY], o[QUERIES][VALUE], expected_o[VALUE];
    float merged_o[QUERIES][VALUE] = {0}, expected_merged_o[QUERIES][VALUE] = {0};
    es_attention_partial partials[QUERIES], merged[QUERIES], expected_merged[QUERIES];
    random_source source = {(uint64_t)end};
    random_floats(&source, TAME, QUERIES * KEY, queries);
    for (int i = 0; i < QUERIES; i++) {
        seen[i] = (es_attention_query){queries + i * KEY, first + i * step, end + i * step};
        partials[i].o = o[i];
        merged[i] = (es_attention_partial){-INFINITY, 0.0f, merged_o[i]};
        expected_merged[i] = (es_attention_partial){-INFINITY, 0.0f, expected_merged_o[i]};
    }
    for (int chunk = 0; chunk * ES_KV_CHUNK < TOKENS; chunk++) {
        k->attention_chunk(&cache, chunk, seen, QUERIES, partials);
        for (int i = 0; i < QUERIES; i++) {
            es_attention_partial expected = {0.0f, 0.0f, expected_o};
            expect_chunk(&cache, chunk, &seen[i], &expected);
            check_equal(&partials[i], &expected, "a chunk", i);
            expect_merge(&expected_merged[i], &expected);
        }
        k->attention_merge(merged, partials, QUERIES, VALUE);
        for (int i = 0; i < QUERIES; i++) {
            check_equal(&merged[i], &expected_merged[i], "chunks merged", i);
        }
    }
    for (int i = 0; i < QUERIES; i++) {
        k->attention_finish(&merged[i], VALUE, o[i]);
        for (int d = 0; d < VALUE; d++) {
            CHECK(o[i][d] == merged_o[i][d] / merged[i].l, "o / l of query %d", i);
        }
    }
}

static void check_attention(es_kv_type type) {
    fill_cache(type);
    check_queries(type, 0, TOKENS, 0, 0.0f);
    check_queries(type, 0, 1, 0, 0.0f);
    check_queries(type, 0, 129, 0, 20.0f);
    check_queries(type, 100, 260, 0, 0.0f);
    check_queries(type, 17, 30, 0, 5.0f);
    check_queries(type, 0, 120, 3, 0.0f); // a tile's end lies in two chunks
    check_queries(type, 100, 190, 18, 0.0f);
    check_queries(type, 120, 121, 17, 7.0f); // no token that two queries see
}

// The largest of `logits` that is not chosen yet, of equals the first.
static int next_expert(const float *logits, int n_experts, const int *is_chosen) {
    int best = -1;
    for (int id = 0; id < n_experts; id++) {
        if (!is_chosen[id] && (best < 0 || logits[id] > logits[best])) {
            best = id;
        }
    }
    return best;
}

// Logits of few values have many equals.
static void check_route(int n_experts, int n_used, int is_normalised, float factor) {
    float logits[MOST], out[2 * MOST], chosen[MOST], all[16] = {0}, ranks[16] = {0};
    int is_chosen[MOST] = {0};
    random_source source = {(uint64_t)(n_experts * MOST + n_used)};
    for (int i = 0; i < n_experts; i++) {
        logits[i] = 0.7f * (float)random_below(&source, n_experts);
    }
    const int32_t widths[] = {n_experts, 2 * n_used};
    float *slots[] = {logits, out};
    int64_t strides[] = {MOST, 2 * MOST};
    const es_executor executor = {
        .kernels = k, .plan = {.slot_widths = widths}, .slots = slots, .strides = strides};
    const es_row_op op = {
        .kind = ES_ROW_MOE_ROUTE, .out = 1, .a = 0, .index = is_normalised, .factor = factor};
    es_route(&executor, &op, 0);
    const float largest = logits[next_expert(logits, n_experts, is_chosen)];
    for (int id = 0; id < n_experts; id++) {
        all[id % 16] += exp_of(logits[id] - largest);
    }
    for (int rank = 0; rank < n_used; rank++) {
        const int id = next_expert(logits, n_experts, is_chosen);
        CHECK(out[rank] == (float)id, "expert %d of %d has rank %d", id, n_experts, rank);
        is_chosen[id] = 1;
        chosen[rank] = exp_of(logits[id] - largest);
        ranks[rank % 16] += chosen[rank];
    }
    const float total = is_normalised ? tree(ranks) : tree(all);
    for (int rank = 0; rank < n_used; rank++) {
        const float weight = chosen[rank] / total * factor;
        CHECK(same(&out[n_used + rank], &weight, sizeof weight), "weight of rank %d", rank);
    }
}

// Whatever comes in, different experts go out: others would leave their memory.
static void check_route_of_anything(int n_experts, int n_used) {
    float logits[MOST], out[2 * MOST];
    int is_chosen[MOST] = {0};
    random_source source = {(uint64_t)(n_experts + n_used)};
    random_floats(&source, SPECIAL, n_experts, logits);
    for (int i = 0; i < n_experts; i += 3) {
        logits[i] = NAN;
    }
    const int32_t widths[] = {n_experts, 2 * n_used};
    float *slots[] = {logits, out};
    int64_t strides[] = {MOST, 2 * MOST};
    const es_executor executor = {
        .kernels = k, .plan = {.slot_widths = widths}, .slots = slots, .strides = strides};
    es_route(&executor, &(es_row_op){.out = 1, .a = 0, .index = 1, .factor = 1.0f}, 0);
    for (int rank = 0; rank < n_used; rank++) {
        const int id = (int)out[rank];
        CHECK(id >= 0 && id < n_experts && !is_chosen[id], "expert %d twice or nowhere", id);
        is_chosen[id < 0 || id >= n_experts ? 0 : id] = 1;
    }
}

static void check_sum_experts(int n_used, int width) {
    float runs[MOST], route[2 * MOST] = {0}, out[MOST];
    random_source source = {(uint64_t)width};
    random_floats(&source, TAME, n_used * width, runs);
    random_floats(&source, TAME, n_used, route + n_used);
    const int32_t widths[] = {n_used * width, 2 * n_used, width};
    float *slots[] = {runs, route, out};
    int64_t strides[] = {MOST, 2 * MOST, MOST};
    const es_executor executor = {
        .kernels = k, .plan = {.slot_widths = widths}, .slots = slots, .strides = strides};
    es_sum_experts(&executor, &(es_row_op){.out = 2, .a = 0, .b = 1}, 0);
    for (int i = 0; i < width; i++) {
        float expected = 0.0f;
        for (int rank = 0; rank < n_used; rank++) {
            expected = fmaf(runs[rank * width + i], route[n_used + rank], expected);
        }
        CHECK(same(&out[i], &expected, sizeof expected), "element %d of a sum of experts", i);
    }
}

static void check_experts(void) {
    static const int sizes[][2] = {{1, 1}, {2, 1}, {8, 2}, {17, 17}, {128, 8}, {300, 40}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        check_route(sizes[i][0], sizes[i][1], 0, 1.0f);
        check_route(sizes[i][0], sizes[i][1], 1, 1.0f);
        check_route(sizes[i][0], sizes[i][1], 1, 2.5f);
        check_route_of_anything(sizes[i][0], sizes[i][1]);
    }
    check_sum_experts(1, 16);
    check_sum_experts(8, 70);
}

int main(void) {
    k = es_kernels_select(NULL);
    for (int n = 1; n <= MOST; n += n < 70 ? 1 : 53) {
        check_rms_norm(n);
        check_sum_exp(n);
        check_rope(n / 2);
    }
    check_rope_tables();
    check_experts();
    check_quantize(32);
    check_quantize(256);
    check_attention(ES_KV_F16);
    check_attention(ES_KV_Q8_0);
    check_attention(ES_KV_Q4_0);
    return report();
}
