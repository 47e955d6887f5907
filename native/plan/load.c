// Weights out of files: many threads, each reading a piece that its cache holds and repacking it.
#include <stdatomic.h>

#include "kernels/weight.h"
#include "quants/lanes.h"
#include "runtime/os.h"
#include "runtime/threads.h"

enum {
    PIECE_BYTES = 256 << 10, // read at a time, and in the second cache when it is repacked
    MAX_THREADS = 1024,
};

typedef struct {
    const es_weight_place *places;
    int32_t n_places;
    const volatile int32_t *cancelled;
    uint8_t *buffers; // one a thread
    size_t buffer_bytes;
    atomic_int status; // the first failure, and whose the fault is
    es_load_fault *fault;
} load;

static int64_t row_bytes(const es_weight *weight) { return weight->panel_bytes / ES_PANEL_LANES; }

static int64_t panels_of_piece(const es_weight *weight) {
    return weight->panel_bytes < PIECE_BYTES ? PIECE_BYTES / weight->panel_bytes : 1;
}

static int64_t count_pieces(const es_weight *weight) {
    const int64_t panels = panels_of_piece(weight);
    return (weight->n_panels + panels - 1) / panels;
}

static void fail(load *l, es_status status, es_load_fault fault) {
    int none = ES_OK;
    if (atomic_compare_exchange_strong(&l->status, &none, (int)status)) {
        *l->fault = fault;
    }
}

static es_status read_all(load *l, int32_t place, int64_t offset, uint8_t *into, int64_t n_bytes) {
    while (n_bytes > 0) {
        const int64_t moved = es_os_read(l->places[place].file, offset, into, (size_t)n_bytes);
        if (moved <= 0) {
            const es_status status = moved == 0 ? ES_ERR_SIZE : ES_ERR_SYSTEM;
            fail(l, status, (es_load_fault){place, (int32_t)-moved, offset});
            return status;
        }
        into += moved;
        offset += moved;
        n_bytes -= moved;
    }
    return ES_OK;
}

static void load_piece(load *l, int32_t place, int64_t piece, uint8_t *buffer) {
    es_weight *weight = l->places[place].weight;
    const int64_t step = panels_of_piece(weight) * ES_PANEL_LANES;
    const int64_t first = piece * step;
    const int64_t rows = weight->n_rows - first < step ? weight->n_rows - first : step;
    const int64_t n_bytes = rows * row_bytes(weight);
    const int64_t offset = l->places[place].offset + first * row_bytes(weight);
    if (read_all(l, place, offset, buffer, n_bytes) == ES_OK) {
        es_weight_fill(weight, first, rows, buffer, (size_t)n_bytes);
    }
}

// Pieces are numbered through all places, in their order.
static void load_pieces(void *context, int64_t first, int64_t end, int32_t worker) {
    load *l = context;
    uint8_t *buffer = l->buffers + (size_t)worker * l->buffer_bytes;
    int64_t before = 0;
    for (int32_t place = 0; place < l->n_places && before < end; place++) {
        const int64_t count = count_pieces(l->places[place].weight);
        for (int64_t piece = first > before ? first - before : 0;
             piece < count && before + piece < end; piece++) {
            if (atomic_load(&l->status) != ES_OK) {
                return;
            }
            if (*l->cancelled != 0) {
                fail(l, ES_ERR_ABORTED, (es_load_fault){.place = -1});
                return;
            }
            load_piece(l, place, piece, buffer);
        }
        before += count;
    }
}

static es_status check_places(const es_weight_place *places, int32_t n_places) {
    for (int32_t i = 0; i < n_places; i++) {
        const es_weight_place *place = &places[i];
        if (place->weight == NULL) {
            return ES_ERR_NULL;
        }
        // One panel has room for more rows than there are; the file need not hold them.
        const int64_t panel_rows = place->weight->n_panels * ES_PANEL_LANES;
        if (place->offset < 0 ||
            row_bytes(place->weight) > (INT64_MAX - place->offset) / panel_rows) {
            return ES_ERR_RANGE;
        }
    }
    return ES_OK;
}

static es_status run(load *l, int32_t n_threads, int64_t n_pieces) {
    es_pool *pool = NULL;
    es_status status = es_pool_create(n_threads, &pool);
    if (status != ES_OK) {
        return status;
    }
    const size_t bytes = (size_t)n_threads * l->buffer_bytes;
    l->buffers = es_os_pages(bytes, 0);
    if (l->buffers == NULL) {
        status = ES_ERR_MEMORY;
    } else {
        es_pool_run(pool, load_pieces, l, n_pieces, 1);
        status = (es_status)atomic_load(&l->status);
    }
    es_os_pages_free(l->buffers, bytes);
    es_pool_free(pool);
    return status;
}

es_status es_weights_load(const es_weight_place *places, int32_t n_places, int32_t n_threads,
                          const int32_t *cancelled, es_load_fault *fault) {
    if ((places == NULL && n_places > 0) || cancelled == NULL || fault == NULL) {
        return ES_ERR_NULL;
    }
    *fault = (es_load_fault){.place = -1};
    if (n_places < 0 || n_threads < 1 || n_threads > MAX_THREADS) {
        return ES_ERR_LENGTH;
    }
    es_status status = check_places(places, n_places);
    if (status != ES_OK) {
        return status;
    }
    load l = {.places = places, .n_places = n_places, .cancelled = cancelled, .fault = fault};
    int64_t n_pieces = 0, most = 0;
    for (int32_t i = 0; i < n_places; i++) {
        const es_weight *weight = places[i].weight;
        const int64_t bytes = panels_of_piece(weight) * weight->panel_bytes;
        most = bytes > most ? bytes : most;
        n_pieces += count_pieces(weight);
    }
    if ((uint64_t)most > SIZE_MAX / MAX_THREADS) {
        return ES_ERR_MEMORY;
    }
    l.buffer_bytes = ((size_t)most + 63) / 64 * 64;
    if (n_pieces == 0) {
        return ES_OK;
    }
    return run(&l, n_pieces < n_threads ? (int32_t)n_pieces : n_threads, n_pieces);
}
