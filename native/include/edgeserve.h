// The C core's public interface: all that Python, and any other program, sees of it.
// Kept plain enough for cffi: tools/generate_cdef.py turns this file into the binding at build.
#ifndef EDGESERVE_H
#define EDGESERVE_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define ES_API __declspec(dllexport)
#else
#define ES_API __attribute__((visibility("default")))
#endif

// Goes up whenever a function, a struct or a value below changes its meaning.
#define ES_ABI_VERSION 1

typedef enum es_status {
    ES_OK = 0,
    ES_ERR_NULL = 1,      // a pointer that must not be null is
    ES_ERR_TYPE = 2,      // the quant type is unknown, or has no dequantiser
    ES_ERR_LENGTH = 3,    // a count is negative, or no whole number of blocks
    ES_ERR_SIZE = 4,      // the source is not exactly as long as its blocks
    ES_ERR_ALIGNMENT = 5, // the destination is not aligned for its element type
    ES_ERR_MEMORY = 6,    // the system has no memory left to give
    ES_ERR_RANGE = 7,     // an index or id lies outside what it points into
    ES_ERR_ABORTED = 8,   // the abort flag was raised; the step's results are void
    ES_ERR_SYSTEM = 9,    // the operating system refused (threads, files)
    ES_ERR_KERNELS = 10,  // no such kernel set, or this processor cannot run it
} es_status;

// GGUF's numbers. A type that is not here is not supported.
typedef enum es_type {
    ES_TYPE_F32 = 0,
    ES_TYPE_F16 = 1,
    ES_TYPE_Q4_0 = 2,
    ES_TYPE_Q4_1 = 3,
    ES_TYPE_Q5_0 = 6,
    ES_TYPE_Q5_1 = 7,
    ES_TYPE_Q8_0 = 8,
    ES_TYPE_Q2_K = 10,
    ES_TYPE_Q3_K = 11,
    ES_TYPE_Q4_K = 12,
    ES_TYPE_Q5_K = 13,
    ES_TYPE_Q6_K = 14,
    ES_TYPE_IQ4_NL = 20,
    ES_TYPE_IQ4_XS = 23,
    ES_TYPE_BF16 = 30,
    ES_TYPE_MXFP4 = 39,
} es_type;

// One quant type: `name` is GGML's, a static string. Plain floats are blocks of one element.
typedef struct es_type_info {
    const char *name;
    int32_t type;
    int32_t block_elements;
    int32_t block_bytes;
} es_type_info;

ES_API int32_t es_abi_version(void);

// The size of a struct above ("es_type_info"), or the offset of a field ("es_type_info.name"),
// as this library was compiled; -1 when it knows no such struct or field.
ES_API int64_t es_layout(const char *name);

// A static, never null, one-line text.
ES_API const char *es_status_text(es_status status);

// How many quant types there are, and number `index` of them; ES_ERR_LENGTH when out of range.
ES_API int32_t es_type_count(void);
ES_API es_status es_type_at(int32_t index, es_type_info *out);

// Widens n_elements values to float32, exactly as the format defines them. `src` holds exactly
// src_bytes and needs no alignment; `dst` has room for n_elements. Neither may overlap the other.
ES_API es_status es_dequantize(es_type type, const void *src, size_t src_bytes, int64_t n_elements,
                               float *dst);

// --- weights -----------------------------------------------------------------------------------

// A weight matrix of the model, in the core's own layout (native/kernels/weight.h).
typedef struct es_weight es_weight;

// Room for n_rows x n_cols of `type`; n_cols is a whole number of its blocks. The contents are
// undefined until every row is filled.
ES_API es_status es_weight_create(es_type type, int64_t n_rows, int64_t n_cols, es_weight **out);

// Repacks n_rows rows, as a GGUF file holds them, to rows first_row, ... of the weight. first_row
// is a multiple of 16, and so is n_rows unless the last row is among them. Calls for different
// rows may run at the same time.
ES_API es_status es_weight_fill(es_weight *weight, int64_t first_row, int64_t n_rows,
                                const void *src, size_t src_bytes);

// Where a weight begins in a file, row after row. `file` is a descriptor open for reading, on
// Windows a HANDLE.
typedef struct es_weight_place {
    es_weight *weight;
    int64_t file;
    int64_t offset;
} es_weight_place;

// What a load failed at: number `place` of the places, at `offset` of its file; `error` is the
// operating system's number, or 0.
typedef struct es_load_fault {
    int32_t place;
    int32_t error;
    int64_t offset;
} es_load_fault;

// Reads and repacks all of these weights, on n_threads threads. It ends early, with ES_ERR_ABORTED,
// once *cancelled is not 0, which another thread may make it at any time; with ES_ERR_SIZE where a
// file ends too soon; and with ES_ERR_SYSTEM where one cannot be read. The last two fill in
// `fault`; without a fault, its place is -1. A weight may not be in two places.
ES_API es_status es_weights_load(const es_weight_place *places, int32_t n_places, int32_t n_threads,
                                 const int32_t *cancelled, es_load_fault *fault);

ES_API int64_t es_weight_bytes(const es_weight *weight);
ES_API void es_weight_free(es_weight *weight);

// --- executor ----------------------------------------------------------------------------------

// A lowered plan is a list of regions over value slots. A slot is float32 (rows, width); a region's
// rows are the step's tokens (T), or those whose end is wanted: first the ones that need logits
// (R), then the ones that give hidden states (H). Every region runs on all threads and ends in a
// barrier. Indices that do not apply are -1.

typedef enum es_rows {
    ES_ROWS_TOKENS = 0,
    ES_ROWS_LOGITS = 1, // R
    ES_ROWS_OUTPUT = 2, // R, then H
    ES_ROWS_HIDDEN = 3, // H, in their places behind R: row operations only
} es_rows;

typedef enum es_row_op_kind {
    ES_ROW_EMBED = 0,     // out = weight[token id] * factor
    ES_ROW_SELECT = 1,    // out (R, H) = those rows of a (T)
    ES_ROW_RMS_NORM = 2,  // out = rms_norm(a) * vector, over each `group` elements
    ES_ROW_ROPE = 3,      // out = a rotated by `rope`, heads of `group` elements
    ES_ROW_STORE_KEY = 4, // cache `index` takes a's heads, as keys
    ES_ROW_STORE_VALUE = 5,
    ES_ROW_ADD = 6,      // out = a + b
    ES_ROW_SCALE = 7,    // out = a * factor
    ES_ROW_SOFT_CAP = 8, // out = factor * tanh(a / factor)
    ES_ROW_GATE = 9,     // out = f(a) * b, f by `index` (es_gate)
    // out (2 * used) = ids of the largest of a (experts), then their weights: es_kernels says how.
    // `index` 1: they sum to 1; 0: they are shares of all experts. Times `factor`.
    ES_ROW_MOE_ROUTE = 10,
    ES_ROW_MOE_SUM = 11, // out = sum of a's runs (used, width) times the weights of route b
} es_row_op_kind;

typedef enum es_gate {
    ES_GATE_SILU = 0,
    ES_GATE_GELU_TANH = 1,
    ES_GATE_RELU_SQUARED = 2,
} es_gate;

typedef struct es_row_op {
    int32_t kind;  // es_row_op_kind
    int32_t out;   // slot
    int32_t a;     // slot
    int32_t b;     // slot
    int32_t index; // weight (EMBED), vector (RMS_NORM), rope, cache, gate, or as the kind says
    int32_t group;
    float factor; // epsilon for RMS_NORM
} es_row_op;

// One product of a linear region: out = epilogue(scale * (x weight^T) + bias), computed in units
// of `unit_rows` weight rows. The epilogue's parts apply in the order they stand here.
typedef struct es_linear {
    int32_t weight;
    int32_t bias;      // vector
    int32_t out;       // slot; -1 where the epilogue stores to a cache
    int32_t unit_rows; // a multiple of 16; one head where the epilogue works on heads
    float scale;
    int32_t up_weight; // gated: out = gate(x weight^T) * (x up_weight^T)
    int32_t up_bias;
    int32_t gate;      // es_gate
    int32_t head_norm; // vector of unit_rows elements
    float head_norm_epsilon;
    int32_t rope;
    int32_t store_key;   // cache
    int32_t store_value; // cache
    int32_t residual;    // slot: out = residual + result
} es_linear;

typedef struct es_attention {
    int32_t q;   // slot
    int32_t out; // slot
    int32_t cache;
    int32_t n_heads;
    int32_t window; // positions; 0: all
    int32_t sinks;  // vector of n_heads
    float scale;
    float soft_cap; // 0: none
} es_attention;

typedef enum es_region_kind {
    ES_REGION_ROWS = 0,      // row ops [first, first + count), row by row
    ES_REGION_LINEAR = 1,    // linears [first, first + count) of input slot x
    ES_REGION_ATTENTION = 2, // attention number `first`
    // Linear number `first`, of each row with each of its experts. The weight holds the rows of
    // n_experts, whole panels each; x is (rows, n_cols), or (rows, used, n_cols) with an input for
    // each of a row's experts; out is (rows, used, rows of an expert). Gates, but nothing else,
    // may follow the product.
    ES_REGION_EXPERTS = 3,
} es_region_kind;

typedef struct es_region {
    int32_t kind; // es_region_kind
    int32_t first;
    int32_t count;
    int32_t rows; // es_rows
    int32_t x;    // linear: input slot
    int32_t norm; // linear: vector; x is RMS-normed on its way in
    float norm_epsilon;
    int32_t route; // experts: slot that an ES_ROW_MOE_ROUTE wrote last
    int32_t n_experts;
} es_region;

typedef struct es_vector {
    const float *data; // copied at creation
    int32_t length;
} es_vector;

typedef struct es_rope {
    const double *frequencies; // (n_pairs,) radians per position; copied at creation
    int32_t n_pairs;
    int32_t interleaved; // pairs are (2i, 2i + 1), else (i, i + n_pairs)
    double magnitude;
} es_rope;

// How a cache holds keys and values: halfs, or integers of 8 or 4 bits with a scale for each 32 of
// a token's elements. Block sizes: es_block_bytes.
typedef enum es_kv_type {
    ES_KV_F16 = 0,
    ES_KV_Q8_0 = 1,
    ES_KV_Q4_0 = 2,
} es_kv_type;

typedef struct es_cache {
    int32_t group;
    int32_t n_kv_heads;
    int32_t key_size;
    int32_t value_size;
    int32_t type; // es_kv_type
} es_cache;

typedef struct es_plan {
    const int32_t *slot_widths;
    const es_region *regions;
    const es_row_op *row_ops;
    const es_linear *linears;
    const es_attention *attentions;
    const es_vector *vectors;
    const es_rope *ropes;
    const es_cache *caches;
    es_weight *const *weights; // borrowed: they outlive the executor
    int32_t n_slots;
    int32_t n_regions;
    int32_t n_row_ops;
    int32_t n_linears;
    int32_t n_attentions;
    int32_t n_vectors;
    int32_t n_ropes;
    int32_t n_caches;
    int32_t n_weights;
    int32_t n_cache_groups;
    int32_t logits; // slot, R rows
    int32_t hidden; // slot, R and H rows: those of H are read
    int32_t vocab_size;
    int32_t max_rows; // of T and R in a step
    int32_t max_position;
} es_plan;

typedef struct es_executor es_executor;

// n_threads counts the calling thread. `kernels` names a kernel set, or is null for the best one
// that this processor runs. Everything the plan points at but the weights is copied.
ES_API es_status es_executor_create(const es_plan *plan, int32_t n_threads, const char *kernels,
                                    int32_t n_blocks, es_executor **out);
ES_API void es_executor_free(es_executor *executor);
ES_API const char *es_executor_kernels(const es_executor *executor);

// A step's rows: groups of consecutive positions, one block table a cache group.
typedef struct es_batch {
    const int32_t *token_ids;     // (n_rows,); -1 takes the row of `embeddings`
    const int32_t *positions;     // (n_rows,)
    const int32_t *first_row;     // (n_groups + 1,)
    const int32_t *n_logits_rows; // (n_groups,) the last rows of each group
    const int32_t *n_hidden_rows; // (n_groups,) the same; 0 where a group has rows with logits
    const int32_t *block_tables;  // (n_cache_groups, n_groups, table_stride), filled up with -1
    const float *embeddings;      // (n_rows, width), or null
    int32_t n_rows;
    int32_t n_groups;
    int32_t table_stride;
} es_batch;

// One forward pass. ES_ERR_RANGE, and nothing written, for ids, positions or blocks that do not
// exist; ES_ERR_ABORTED as soon as the flag is seen between regions.
ES_API es_status es_step(es_executor *executor, const es_batch *batch);

// Where steps spend their time: from the next step on, every region's nanoseconds are added to
// nanoseconds[region], and what comes before the first region to nanoseconds[n_regions]. The array
// is the caller's, n = n_regions + 1; it stays until another, or null, which ends it, is given.
ES_API es_status es_profile(es_executor *executor, uint64_t *nanoseconds, int32_t n);

// Raises or lowers the abort flag; from any thread.
ES_API void es_abort(es_executor *executor, int32_t raised);

// The last step's logits: (n_rows, stride) float32, valid until the next step.
ES_API es_status es_logits(const es_executor *executor, const float **out, int32_t *n_rows,
                           int64_t *stride);

// The last step's hidden states: (n_rows, stride) float32, valid until the next step.
ES_API es_status es_hidden(const es_executor *executor, const float **out, int32_t *n_rows,
                           int64_t *stride);

// KV blocks. `bytes` is n_ids * es_block_bytes(cache group).
ES_API int64_t es_block_bytes(const es_executor *executor, int32_t cache_group);
ES_API es_status es_blocks_grow(es_executor *executor, int32_t n_blocks);
ES_API es_status es_blocks_copy(es_executor *executor, int32_t cache_group, const int32_t *pairs,
                                int32_t n_pairs);
ES_API es_status es_blocks_read(const es_executor *executor, int32_t cache_group,
                                const int32_t *ids, int32_t n_ids, void *bytes);
ES_API es_status es_blocks_write(es_executor *executor, int32_t cache_group, const int32_t *ids,
                                 int32_t n_ids, const void *bytes);

// --- sampling ----------------------------------------------------------------------------------

typedef enum es_sample_mode {
    ES_SAMPLE_CHOOSE = 0, // choose a token
    ES_SAMPLE_SCORE = 1,  // report on a token that is known
} es_sample_mode;

// What a row of logits goes through, by the names that llama.cpp's server gives them.
typedef enum es_sampler {
    ES_SAMPLER_PENALTIES = 0,
    ES_SAMPLER_DRY = 1,
    ES_SAMPLER_TOP_N_SIGMA = 2,
    ES_SAMPLER_TOP_K = 3,
    ES_SAMPLER_TYPICAL_P = 4,
    ES_SAMPLER_TOP_P = 5,
    ES_SAMPLER_MIN_P = 6,
    ES_SAMPLER_XTC = 7,
    ES_SAMPLER_TEMPERATURE = 8, // with a dynatemp_range, dynamic
    ES_SAMPLER_MIROSTAT = 9,    // version 2
} es_sampler;

// What ends a repetition for DRY. Number i of the sequences is the token heads[i], then
// tails[ends[i - 1]] to tails[ends[i]]; heads ascend, and of those with one head the longest is
// first.
typedef struct es_breakers {
    const uint32_t *alone; // bitmap (ceil(vocab / 32),): tokens that break by themselves
    const int32_t *heads;  // (n_sequences,)
    const int32_t *ends;   // (n_sequences,)
    const int32_t *tails;  // (n_tails,)
    int32_t n_words;       // of `alone`
    int32_t n_sequences;
    int32_t n_tails;
} es_breakers;

// What to do with one row of logits. Penalties, then bias, then the mask and banned tokens; then
// greedy at temperature 0, else top_k, top_p, min_p, temperature, and Gumbel-max with noise keyed
// by (seed, position). A knob that is off: top_k 0, top_p 1, min_p 0, penalties 1, 0, 0.
//
// With `samplers`, those in their order and no others: penalties and DRY that lead them go before
// bias, and all others after bias, mask and bans.
typedef struct es_sample_row {
    const int32_t *history; // prompt and output; the first n_prompt are the prompt
    const int32_t *bias_ids;
    const double *bias_values; // -100 and below bans
    const int32_t *banned;
    const int32_t *samplers;     // (n_samplers,) es_sampler, or null
    const uint32_t *mask;        // bitmap (ceil(vocab / 32),), lowest bit first: tokens allowed
    const es_breakers *breakers; // or null
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    double presence_penalty;
    double frequency_penalty;
    double dynatemp_range;
    double dynatemp_exponent;
    double typical_p;
    double top_n_sigma; // 0: off
    double xtc_probability;
    double xtc_threshold;
    double dry_multiplier;
    double dry_base;
    double mirostat_tau;
    double mirostat_eta;
    double mu; // of mirostat, after the token before
    uint64_t seed;
    int64_t position;
    int32_t mode;
    int32_t token; // ES_SAMPLE_SCORE
    int32_t top_k;
    int32_t n_history;
    int32_t n_prompt;
    int32_t n_bias;
    int32_t n_banned;
    int32_t n_top; // likeliest tokens to report; -1: no logprob at all
    int32_t n_samplers;
    int32_t n_mask_words;
    int32_t penalty_last_n; // of history, the tokens that penalties look at; 0: all
    int32_t dry_last_n;     // the same for DRY
    int32_t dry_allowed_length;
    int32_t min_keep;
    int32_t chained; // 1: mu is that of the row before, which is the same sequence's
} es_sample_row;

// rank 1 is the likeliest; logprob is natural, under the unmodified logits.
typedef struct es_sampled {
    double logprob;
    double mu; // mirostat's, after this token; the row's own without mirostat
    int32_t token;
    int32_t rank;
    int32_t is_finite;  // 0: the row held NaN or +infinity, or nothing but -infinity
    int32_t is_allowed; // 0: the mask leaves no token that the model can make
    int32_t n_top;
} es_sampled;

// Row i of the last step's logits by rows[i]. `top_ids` and `top_logprobs` are (n_rows,
// top_stride).
ES_API es_status es_sample(es_executor *executor, const es_sample_row *rows, int32_t n_rows,
                           es_sampled *out, int32_t *top_ids, double *top_logprobs,
                           int32_t top_stride);

// The same for logits that the caller holds, (n_rows, stride) float32: for tests and tools.
ES_API es_status es_sample_logits(const float *logits, int64_t stride, int32_t vocab_size,
                                  const es_sample_row *rows, int32_t n_rows, const char *kernels,
                                  es_sampled *out, int32_t *top_ids, double *top_logprobs,
                                  int32_t top_stride);

// --- machine -----------------------------------------------------------------------------------

// Cores worth computing on: physical and performance cores, within affinity and cgroup limits.
ES_API int32_t es_n_cores(void);

// Number `index` of the kernel sets there are, best first; null past the last.
// `*runs` is 1 if this build has it and this processor can run it.
ES_API const char *es_kernel_set(int32_t index, int32_t *runs);

// What speeds are measured against: how fast n_threads threads read memory, and multiply int8 with
// the instructions of a kernel set (null: the best). The memory, n_bytes of it, is taken at
// creation and should be more than caches hold.
typedef struct es_meter es_meter;
ES_API es_status es_meter_create(const char *kernels, int32_t n_threads, int64_t n_bytes,
                                 es_meter **out);
ES_API void es_meter_free(es_meter *meter);
ES_API double es_meter_read(es_meter *meter); // bytes a second, of one pass over the memory
ES_API double es_meter_int8(es_meter *meter); // operations a second: a product and its sum are two

#endif
