// Weights out of a file: what a load leaves in memory is what filling does, on any number of
// threads and wherever in its file a weight begins; and every way in which a load can end early.
// Prints "N passed, M failed".
#define _DEFAULT_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/weight.h"
#include "tests/check.h"

enum { N_TYPES_MOST = 32, GAP = 5 };

// A file of weights, bytes and all, and the weights that filling makes of them.
typedef struct {
    FILE *stream;
    int file; // its descriptor
    int32_t n;
    es_weight_place places[2 * N_TYPES_MOST]; // not loaded yet
    es_weight *filled[2 * N_TYPES_MOST];
    int64_t n_bytes;
} test_file;

static random_source source = {1};
static const int32_t nobody_cancels = 0;

static void need(int ok, const char *what) {
    if (!ok) {
        printf("%s failed\n", what);
        exit(1);
    }
}

static void add_weight(test_file *f, const es_type_info *info, int64_t n_rows, int64_t n_cols) {
    const size_t bytes = (size_t)(n_rows * (n_cols / info->block_elements) * info->block_bytes);
    uint8_t *data = malloc(bytes + GAP);
    need(data != NULL, "malloc");
    for (size_t i = 0; i < bytes + GAP; i++) {
        data[i] = (uint8_t)random_bits(&source);
    }
    es_weight *weights[2];
    for (int i = 0; i < 2; i++) {
        need(es_weight_create((es_type)info->type, n_rows, n_cols, &weights[i]) == ES_OK, "create");
    }
    need(es_weight_fill(weights[1], 0, n_rows, data, bytes) == ES_OK, "fill");
    need(write(f->file, data, bytes + GAP) == (ssize_t)(bytes + GAP), "write");
    f->places[f->n] = (es_weight_place){weights[0], f->file, f->n_bytes};
    f->filled[f->n++] = weights[1];
    f->n_bytes += (int64_t)bytes + GAP;
    free(data);
}

// Of every type one weight that is less than a piece, and one that is several.
static test_file make_file(void) {
    test_file f = {.stream = tmpfile()};
    need(f.stream != NULL, "tmpfile");
    f.file = fileno(f.stream);
    es_type_info info;
    for (int32_t i = 0; es_type_at(i, &info) == ES_OK; i++) {
        add_weight(&f, &info, 17, 2 * info.block_elements);
        add_weight(&f, &info, 1000 + i, 1024);
    }
    return f;
}

static void free_file(test_file *f) {
    for (int32_t i = 0; i < f->n; i++) {
        es_weight_free(f->places[i].weight);
        es_weight_free(f->filled[i]);
    }
    fclose(f->stream);
}

static void check_same(test_file *f, int32_t n_threads) {
    for (int32_t i = 0; i < f->n; i++) {
        memset(f->places[i].weight->data, 0xff, (size_t)es_weight_bytes(f->filled[i]));
    }
    es_load_fault fault;
    const es_status status = es_weights_load(f->places, f->n, n_threads, &nobody_cancels, &fault);
    CHECK(status == ES_OK, "%d threads: status %d", (int)n_threads, (int)status);
    CHECK(fault.place == -1, "%d threads: a fault", (int)n_threads);
    for (int32_t i = 0; i < f->n; i++) {
        const size_t bytes = (size_t)es_weight_bytes(f->filled[i]);
        CHECK(memcmp(f->places[i].weight->data, f->filled[i]->data, bytes) == 0,
              "%d threads: weight %d differs", (int)n_threads, (int)i);
    }
}

static void check_cut(test_file *f) {
    const int32_t last = f->n - 1;
    const int64_t end = f->places[last].offset + 100;
    need(ftruncate(f->file, end) == 0, "ftruncate");
    for (int32_t n_threads = 1; n_threads <= 3; n_threads++) {
        es_load_fault fault;
        const es_status status =
            es_weights_load(f->places, f->n, n_threads, &nobody_cancels, &fault);
        CHECK(status == ES_ERR_SIZE, "a cut file: status %d", (int)status);
        CHECK(fault.place == last && fault.error == 0, "a cut file: place %d", (int)fault.place);
        CHECK(fault.offset >= end, "a cut file: offset %lld", (long long)fault.offset);
    }
    es_load_fault fault;
    CHECK(es_weights_load(f->places, last, 2, &nobody_cancels, &fault) == ES_OK, "before the cut");
}

static void check_refusals(test_file *f) {
    es_load_fault fault;
    const int32_t cancelled = 1;
    es_weight_place place = f->places[0];
    CHECK(es_weights_load(&place, 1, 2, &cancelled, &fault) == ES_ERR_ABORTED, "cancelled");
    CHECK(es_weights_load(NULL, 1, 2, &nobody_cancels, &fault) == ES_ERR_NULL, "no places");
    CHECK(es_weights_load(&place, 1, 2, NULL, &fault) == ES_ERR_NULL, "no flag");
    CHECK(es_weights_load(&place, 1, 2, &nobody_cancels, NULL) == ES_ERR_NULL, "no fault");
    CHECK(es_weights_load(NULL, 0, 2, &nobody_cancels, &fault) == ES_OK, "nothing to load");
    CHECK(es_weights_load(&place, -1, 2, &nobody_cancels, &fault) == ES_ERR_LENGTH, "count");
    CHECK(es_weights_load(&place, 1, 0, &nobody_cancels, &fault) == ES_ERR_LENGTH, "threads");
    CHECK(es_weights_load(&place, 1, 2000, &nobody_cancels, &fault) == ES_ERR_LENGTH, "threads");
    place.offset = -1;
    CHECK(es_weights_load(&place, 1, 2, &nobody_cancels, &fault) == ES_ERR_RANGE, "before 0");
    place.offset = INT64_MAX - 10;
    CHECK(es_weights_load(&place, 1, 2, &nobody_cancels, &fault) == ES_ERR_RANGE, "overflow");
    place.offset = 0;
    place.weight = NULL;
    CHECK(es_weights_load(&place, 1, 2, &nobody_cancels, &fault) == ES_ERR_NULL, "no weight");
    es_weight_place places[2] = {f->places[0], f->places[1]};
    places[1].file = -1;
    CHECK(es_weights_load(places, 2, 2, &nobody_cancels, &fault) == ES_ERR_SYSTEM, "no file");
    CHECK(fault.place == 1 && fault.error == EBADF, "no file: %d, error %d", (int)fault.place,
          (int)fault.error);
}

int main(void) {
    test_file f = make_file();
    for (int32_t n_threads = 1; n_threads <= 4; n_threads++) {
        check_same(&f, n_threads);
    }
    check_refusals(&f);
    check_cut(&f);
    free_file(&f);
    return report();
}
