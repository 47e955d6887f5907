// KV pools: their memory, and blocks as bytes for whoever keeps them elsewhere.
#include <stdlib.h>
#include <string.h>

#include "plan/executor.h"
#include "runtime/os.h"

static es_status pool_create(es_cache_pool *pool, const es_cache *spec, int64_t n_blocks) {
    pool->spec = *spec;
    pool->key_block = es_kv_block_bytes((es_kv_type)spec->type, spec->key_size);
    pool->value_block = es_kv_block_bytes((es_kv_type)spec->type, spec->value_size);
    pool->key_bytes = (size_t)(spec->n_kv_heads * n_blocks * pool->key_block);
    pool->value_bytes = (size_t)(spec->n_kv_heads * n_blocks * pool->value_block);
    // Touched pages only count, so a large pool costs nothing until it is used.
    pool->keys = es_os_pages(pool->key_bytes, 0);
    pool->values = es_os_pages(pool->value_bytes, 0);
    return pool->keys != NULL && pool->values != NULL ? ES_OK : ES_ERR_MEMORY;
}

static void pool_free(es_cache_pool *pool) {
    es_os_pages_free(pool->keys, pool->key_bytes);
    es_os_pages_free(pool->values, pool->value_bytes);
    pool->keys = NULL;
    pool->values = NULL;
}

es_status es_pools_create(es_executor *executor, int32_t n_blocks) {
    for (int32_t i = 0; i < executor->plan.n_caches; i++) {
        if (pool_create(&executor->caches[i], &executor->plan.caches[i], n_blocks) != ES_OK) {
            return ES_ERR_MEMORY;
        }
    }
    executor->n_blocks = n_blocks;
    executor->capacity = n_blocks;
    return ES_OK;
}

void es_pools_free(es_executor *executor) {
    for (int32_t i = 0; executor->caches != NULL && i < executor->plan.n_caches; i++) {
        pool_free(&executor->caches[i]);
    }
}

static void copy_pool(const es_executor *executor, const es_cache_pool *from, es_cache_pool *to,
                      int64_t n_blocks) {
    const int64_t k = from->key_block, v = from->value_block;
    for (int64_t head = 0; head < from->spec.n_kv_heads; head++) {
        const int64_t old = head * executor->capacity, new = head * n_blocks;
        memcpy(to->keys + new * k, from->keys + old * k, (size_t)(executor->capacity * k));
        memcpy(to->values + new * v, from->values + old * v, (size_t)(executor->capacity * v));
    }
}

es_status es_blocks_grow(es_executor *executor, int32_t n_blocks) {
    if (executor == NULL) {
        return ES_ERR_NULL;
    }
    if (n_blocks < executor->n_blocks) {
        return ES_ERR_RANGE;
    }
    // All new pools first, so that a failure leaves everything as it was.
    es_cache_pool *grown = calloc((size_t)executor->plan.n_caches + 1, sizeof *grown);
    es_status status = grown == NULL ? ES_ERR_MEMORY : ES_OK;
    for (int32_t i = 0; status == ES_OK && i < executor->plan.n_caches; i++) {
        status = pool_create(&grown[i], &executor->plan.caches[i], n_blocks);
    }
    for (int32_t i = 0; grown != NULL && i < executor->plan.n_caches; i++) {
        if (status == ES_OK) {
            copy_pool(executor, &executor->caches[i], &grown[i], n_blocks);
            pool_free(&executor->caches[i]);
            executor->caches[i] = grown[i];
        } else {
            pool_free(&grown[i]);
        }
    }
    if (status == ES_OK) {
        executor->n_blocks = n_blocks;
        executor->capacity = n_blocks;
    }
    free(grown);
    return status;
}

int64_t es_block_bytes(const es_executor *executor, int32_t cache_group) {
    int64_t n_bytes = 0;
    for (int32_t i = 0; executor != NULL && i < executor->plan.n_caches; i++) {
        const es_cache_pool *pool = &executor->caches[i];
        if (pool->spec.group == cache_group) {
            n_bytes += pool->spec.n_kv_heads * (pool->key_block + pool->value_block);
        }
    }
    return n_bytes;
}

static es_status check_ids(const es_executor *executor, int32_t cache_group, const int32_t *ids,
                           int64_t n_ids) {
    if (executor == NULL || ids == NULL) {
        return ES_ERR_NULL;
    }
    if (cache_group < 0 || cache_group >= executor->plan.n_cache_groups || n_ids < 0) {
        return ES_ERR_RANGE;
    }
    for (int64_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= executor->n_blocks) {
            return ES_ERR_RANGE;
        }
    }
    return ES_OK;
}

// One run of bytes of a block, and how to move it: the four calls below differ in nothing else.
typedef void (*move_fn)(void *context, uint8_t *block, size_t n_bytes);

static void each_run(const es_executor *executor, int32_t cache_group, int64_t block, move_fn move,
                     void *context) {
    for (int32_t i = 0; i < executor->plan.n_caches; i++) {
        const es_cache_pool *pool = &executor->caches[i];
        const size_t k = (size_t)pool->key_block, v = (size_t)pool->value_block;
        for (int64_t head = 0; pool->spec.group == cache_group && head < pool->spec.n_kv_heads;
             head++) {
            move(context, es_key_block(executor, pool, head, block), k);
            move(context, es_value_block(executor, pool, head, block), v);
        }
    }
}

static void move_out(void *context, uint8_t *block, size_t n_bytes) {
    uint8_t **bytes = context;
    memcpy(*bytes, block, n_bytes);
    *bytes += n_bytes;
}

static void move_in(void *context, uint8_t *block, size_t n_bytes) {
    const uint8_t **bytes = context;
    memcpy(block, *bytes, n_bytes);
    *bytes += n_bytes;
}

es_status es_blocks_read(const es_executor *executor, int32_t cache_group, const int32_t *ids,
                         int32_t n_ids, void *bytes) {
    es_status status = bytes == NULL ? ES_ERR_NULL : check_ids(executor, cache_group, ids, n_ids);
    for (int32_t i = 0; status == ES_OK && i < n_ids; i++) {
        each_run(executor, cache_group, ids[i], move_out, &bytes);
    }
    return status;
}

es_status es_blocks_write(es_executor *executor, int32_t cache_group, const int32_t *ids,
                          int32_t n_ids, const void *bytes) {
    es_status status = bytes == NULL ? ES_ERR_NULL : check_ids(executor, cache_group, ids, n_ids);
    for (int32_t i = 0; status == ES_OK && i < n_ids; i++) {
        each_run(executor, cache_group, ids[i], move_in, &bytes);
    }
    return status;
}

es_status es_blocks_copy(es_executor *executor, int32_t cache_group, const int32_t *pairs,
                         int32_t n_pairs) {
    es_status status = check_ids(executor, cache_group, pairs, 2 * (int64_t)n_pairs);
    const int64_t n_bytes = es_block_bytes(executor, cache_group);
    uint8_t *bytes = status == ES_OK ? malloc((size_t)n_bytes + 1) : NULL;
    if (status == ES_OK && bytes == NULL) {
        status = ES_ERR_MEMORY;
    }
    for (int32_t i = 0; status == ES_OK && i < n_pairs; i++) {
        es_blocks_read(executor, cache_group, &pairs[2 * i], 1, bytes);
        es_blocks_write(executor, cache_group, &pairs[2 * i + 1], 1, bytes);
    }
    free(bytes);
    return status;
}
