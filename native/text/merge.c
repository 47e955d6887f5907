// Encodes: neighbours merge, the best pair of all first and of equals the leftmost, until none can.
#include <stdlib.h>
#include <string.h>

#include "text/merger.h"

enum { NONE = -1 };

// A piece's text is a list of symbols, each a run of bytes and the token of them (-1: none).
typedef struct {
    int32_t previous;
    int32_t next;
    int32_t start;
    int32_t n_bytes; // 0: it has become part of the one before
    int32_t id;
} symbol;

// Two neighbours that may merge, as they were when it was found.
typedef struct {
    uint32_t order;
    int32_t left;
    int32_t n_bytes;
    int32_t id;
} candidate;

typedef struct {
    const es_merger *merger;
    const uint8_t *text;
    symbol *symbols;
    int32_t n_symbols;
    candidate *heap; // the first to merge on top
    int32_t n_heap;
    int32_t *ids;
    int32_t n_ids;
    uint8_t *spelling; // room for a piece in the tokens' own alphabet
} merging;

static int is_before(candidate a, candidate b) {
    return a.order != b.order ? a.order < b.order : a.left < b.left;
}

static void push(merging *m, candidate added) {
    int32_t at = m->n_heap++;
    while (at > 0 && is_before(added, m->heap[(at - 1) / 2])) {
        m->heap[at] = m->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    m->heap[at] = added;
}

static candidate pop(merging *m) {
    const candidate top = m->heap[0], last = m->heap[--m->n_heap];
    int32_t at = 0;
    for (int32_t child = 1; child < m->n_heap; child = 2 * at + 1) {
        if (child + 1 < m->n_heap && is_before(m->heap[child + 1], m->heap[child])) {
            child++;
        }
        if (!is_before(m->heap[child], last)) {
            break;
        }
        m->heap[at] = m->heap[child];
        at = child;
    }
    m->heap[at] = last;
    return top;
}

static void consider(merging *m, int32_t left, int32_t right) {
    if (left == NONE || right == NONE) {
        return;
    }
    const es_merger *merger = m->merger;
    const symbol *a = &m->symbols[left], *b = &m->symbols[right];
    candidate found = {.left = left, .n_bytes = a->n_bytes + b->n_bytes};
    if (merger->orders != NULL) {
        found.id = es_token_id(merger->tokens, m->text + a->start, (size_t)found.n_bytes);
        found.order = found.id < 0 ? ES_NEVER : merger->orders[found.id];
        if (found.order == ES_NEVER) {
            return;
        }
    } else {
        const int32_t rank = es_pair_rank(&merger->pairs, a->id, b->id);
        if (rank < 0) {
            return;
        }
        found.id = merger->pairs.merged[rank];
        found.order = (uint32_t)rank;
    }
    push(m, found);
}

static void merge_symbols(merging *m) {
    for (int32_t i = 1; i < m->n_symbols; i++) {
        consider(m, i - 1, i);
    }
    while (m->n_heap > 0) {
        const candidate top = pop(m);
        symbol *left = &m->symbols[top.left];
        if (left->n_bytes == 0 || left->next == NONE) {
            continue;
        }
        symbol *right = &m->symbols[left->next];
        if (left->n_bytes + right->n_bytes != top.n_bytes) {
            continue; // one of the two has merged with another since
        }
        left->n_bytes = top.n_bytes;
        left->id = top.id;
        left->next = right->next;
        right->n_bytes = 0;
        if (right->next != NONE) {
            m->symbols[right->next].previous = top.left;
        }
        consider(m, left->previous, top.left);
        consider(m, top.left, left->next);
    }
}

static void add_symbol(merging *m, int32_t start, int32_t n_bytes, int32_t id) {
    const int32_t at = m->n_symbols++;
    m->symbols[at] = (symbol){at - 1, at + 1, start, n_bytes, id};
}

static int32_t character_bytes(uint8_t first, int32_t left) {
    const int32_t n = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    return n < left ? n : left;
}

// The piece [start, end) as bytes, or as characters; those without a token of their own are bytes
// where pairs of tokens merge, and stay whole where their text may.
static void split(merging *m, int32_t start, int32_t end) {
    const es_merger *merger = m->merger;
    for (int32_t at = start; at < end;) {
        int32_t n = 1, id = NONE;
        if (!merger->options.by_bytes) {
            n = character_bytes(m->text[at], end - at);
            id = es_token_id(merger->tokens, m->text + at, (size_t)n);
        }
        if (id >= 0 || merger->orders != NULL) {
            add_symbol(m, at, n, id);
        } else {
            for (int32_t i = 0; i < n; i++) {
                add_symbol(m, at + i, 1, merger->options.byte_ids[m->text[at + i]]);
            }
        }
        at += n;
    }
    m->symbols[m->n_symbols - 1].next = NONE;
}

// The token that the piece is as a whole, or -1.
static int32_t whole_token(merging *m, int32_t start, int32_t end) {
    const es_merger *merger = m->merger;
    if (!merger->options.takes_whole) {
        return NONE;
    }
    if (!merger->options.by_bytes) {
        return es_token_id(merger->tokens, m->text + start, (size_t)(end - start));
    }
    const es_strings *texts = &merger->tokens->texts;
    size_t n_bytes = 0;
    for (int32_t at = start; at < end; at++) {
        const int32_t id = merger->options.byte_ids[m->text[at]];
        const size_t more = id < 0 ? 0 : es_text_bytes(texts, id);
        if (more == 0 || n_bytes + more > merger->tokens->longest) {
            return NONE;
        }
        memcpy(m->spelling + n_bytes, es_text_at(texts, id), more);
        n_bytes += more;
    }
    return es_token_id(merger->tokens, m->spelling, n_bytes);
}

// What no token stands for becomes bytes, or one unknown token for a run of it, or nothing.
static void emit_unknown(merging *m, const symbol *s, int after_unknown) {
    const es_merger_options *options = &m->merger->options;
    for (int32_t i = 0; i < s->n_bytes; i++) {
        const int32_t id = options->byte_ids[m->text[s->start + i]];
        if (id >= 0) {
            m->ids[m->n_ids++] = id;
        } else if (i == 0 && !after_unknown && options->unknown >= 0) {
            m->ids[m->n_ids++] = options->unknown;
        }
    }
}

static void encode(merging *m, int32_t start, int32_t end) {
    m->n_symbols = m->n_heap = 0;
    if (start >= end) {
        return;
    }
    const int32_t whole = whole_token(m, start, end);
    if (whole >= 0) {
        m->ids[m->n_ids++] = whole;
        return;
    }
    split(m, start, end);
    merge_symbols(m);
    int is_unknown = 0;
    for (int32_t at = 0; at != NONE; at = m->symbols[at].next) {
        const symbol *s = &m->symbols[at];
        const int after_unknown = is_unknown;
        is_unknown = s->id < 0 || s->id == m->merger->options.unknown;
        if (is_unknown) {
            emit_unknown(m, s, after_unknown);
        } else {
            m->ids[m->n_ids++] = s->id;
        }
    }
}

// The longest piece; -1 when they do not follow each other.
static int32_t longest_piece(const int32_t *ends, int32_t n_pieces) {
    int32_t longest = 0;
    for (int32_t i = 0, start = 0; i < n_pieces; start = ends[i++]) {
        if (ends[i] < start) {
            return -1;
        }
        longest = ends[i] - start > longest ? ends[i] - start : longest;
    }
    return longest;
}

es_status es_merge(const es_merger *merger, const uint8_t *text, const int32_t *ends,
                   int32_t n_pieces, int32_t *ids, int32_t *id_ends) {
    if (merger == NULL || text == NULL || ends == NULL || ids == NULL || id_ends == NULL) {
        return ES_ERR_NULL;
    }
    const int32_t longest = longest_piece(ends, n_pieces);
    // A symbol is found twice more at most: with what it merged into, from either side.
    if (n_pieces < 0 || longest < 0 || longest > INT32_MAX / 4) {
        return ES_ERR_LENGTH;
    }
    const size_t room = (size_t)longest + 1;
    merging m = {.merger = merger, .text = text, .ids = ids};
    m.symbols = malloc(room * sizeof *m.symbols);
    m.heap = malloc(3 * room * sizeof *m.heap);
    m.spelling = malloc(merger->tokens->longest + 1);
    es_status status = ES_ERR_MEMORY;
    if (m.symbols != NULL && m.heap != NULL && m.spelling != NULL) {
        for (int32_t i = 0, start = 0; i < n_pieces; start = ends[i++]) {
            encode(&m, start, ends[i]);
            id_ends[i] = m.n_ids;
        }
        status = ES_OK;
    }
    free(m.symbols);
    free(m.heap);
    free(m.spelling);
    return status;
}
