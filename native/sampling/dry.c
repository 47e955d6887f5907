// DRY, as llama.cpp has it (p-e-w; the port of pi6am): linear in the history it looks at.
#include <assert.h>

#include "sampling/logits.h"
#include "sampling/math64.h"

// Penalties stay finite: they make a token hopeless, and ban none.
static const double LARGEST_PENALTY = 1e30;

// The history backwards: 0 is the last token.
typedef struct {
    const int32_t *end;
    int32_t n;
} recent;

static int32_t at(recent tokens, int32_t back) { return tokens.end[-1 - back]; }

// How many tokens of the breaker number `i` follow its head.
static int32_t tail_length(const es_breakers *breakers, int32_t i) {
    return breakers->ends[i] - (i > 0 ? breakers->ends[i - 1] : 0);
}

static int tail_is_at(const es_breakers *breakers, int32_t i, recent tokens, int32_t back) {
    const int32_t length = tail_length(breakers, i);
    const int32_t *tail = breakers->tails + breakers->ends[i] - length;
    if (length > back) {
        return 0;
    }
    for (int32_t k = 0; k < length; k++) {
        if (tail[k] != at(tokens, back - 1 - k)) {
            return 0;
        }
    }
    return 1;
}

// Tokens after the head, of the longest breaker that begins there; -1: none does.
static int32_t breaker_at(const es_breakers *breakers, recent tokens, int32_t back) {
    const int32_t head = at(tokens, back);
    int32_t low = 0, high = breakers->n_sequences;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (breakers->heads[middle] < head) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (int32_t i = low; i < breakers->n_sequences && breakers->heads[i] == head; i++) {
        if (tail_is_at(breakers, i, tokens, back)) {
            return tail_length(breakers, i);
        }
    }
    return es_bit(breakers->alone, head) ? 0 : -1;
}

// How many of the last tokens lie behind the last breaker: no repetition reaches beyond it.
static int32_t unbroken(const es_breakers *breakers, recent tokens) {
    for (int32_t back = 0; breakers != NULL && back < tokens.n; back++) {
        const int32_t tail = breaker_at(breakers, tokens, back);
        if (tail >= 0) {
            return back - tail;
        }
    }
    return tokens.n;
}

// repeats[k]: how many tokens that end k before the last are the last tokens again. The Z-algorithm
// (Gusfield 1997), backwards.
static void find_repeats(recent tokens, int32_t *repeats) {
    int32_t left = 0, right = 0; // the match that reaches furthest: [left, right)
    repeats[0] = 0;
    for (int32_t k = 1; k < tokens.n; k++) {
        int32_t length = 0;
        if (k < right) {
            const int32_t seen = repeats[k - left];
            length = seen < right - k ? seen : right - k;
        }
        if (k + length >= right) {
            while (k + length < tokens.n && at(tokens, length) == at(tokens, k + length)) {
                length++;
            }
            left = k;
            right = k + length;
        }
        repeats[k] = length;
    }
}

static double penalty_of(const es_sample_row *row, int32_t length) {
    const double growth = es_exp64((length - row->dry_allowed_length) * es_log64(row->dry_base));
    const double penalty = row->dry_multiplier * growth;
    return penalty < LARGEST_PENALTY ? penalty : LARGEST_PENALTY;
}

void es_penalise_repeats(const es_sample_row *row, float *logits, es_sampler_scratch *scratch) {
    const int32_t n =
        row->dry_last_n > 0 && row->dry_last_n < row->n_history ? row->dry_last_n : row->n_history;
    const recent tokens = {row->history + row->n_history, n};
    int32_t *longest = scratch->counts; // 1 + the longest repetition that a token goes on with
    if (row->dry_multiplier == 0.0 || n <= row->dry_allowed_length) {
        return;
    }
    const int32_t limit = unbroken(row->breakers, tokens);
    if (limit < row->dry_allowed_length) {
        return;
    }
    assert(n <= scratch->max_history);
    find_repeats(tokens, scratch->repeats);
    for (int32_t k = 1; k < n; k++) {
        const int32_t next = at(tokens, k - 1);
        const int32_t length = scratch->repeats[k] < limit ? scratch->repeats[k] : limit;
        if (length >= row->dry_allowed_length && length >= longest[next]) {
            longest[next] = length + 1;
        }
    }
    for (int32_t k = 1; k < n; k++) {
        const int32_t next = at(tokens, k - 1);
        if (longest[next] > 0 && !(row->breakers != NULL && es_bit(row->breakers->alone, next))) {
            logits[next] = (float)(logits[next] - penalty_of(row, longest[next] - 1));
        }
        longest[next] = 0; // clean for the next row, and seen once
    }
}
