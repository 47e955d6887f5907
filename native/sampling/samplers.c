// Samplers in the order of the request, as llama.cpp has them. What is left has no order of its
// own: results depend on the set, and on ids where likelihoods are equal.
#include <math.h>

#include "sampling/candidates.h"
#include "sampling/logits.h"
#include "sampling/math64.h"
#include "sampling/noise.h"

static const double LN2 = 0.6931471805599453;

// Logits that a tiny temperature divided stay within it: infinite, they could not be compared.
static const float LARGEST_LOGIT = 1e30f;

// 0 for the likeliest, else less.
static double scaled(const es_running *running, float logit) {
    return ((double)logit - (double)running->largest) / running->temperature;
}

static double weight_of(const es_running *running, int32_t i) {
    return es_exp64(scaled(running, running->first[i].logit));
}

static double total_weight(const es_running *running) {
    double total = 0.0;
    for (int32_t i = 0; i < running->n; i++) {
        total += weight_of(running, i);
    }
    return total;
}

// The mean of `scaled`, by probability; *total is the sum of weights.
static double mean_scaled(const es_running *running, double *total) {
    double sum = 0.0;
    *total = 0.0;
    for (int32_t i = 0; i < running->n; i++) {
        const double value = scaled(running, running->first[i].logit);
        const double weight = es_exp64(value);
        *total += weight;
        sum += weight > 0.0 ? weight * value : 0.0; // not 0 * infinity
    }
    return sum / *total;
}

double es_surprise(const es_running *running, float logit) {
    return (es_log64(total_weight(running)) - scaled(running, logit)) / LN2;
}

static void find_largest(es_running *running) {
    running->largest = running->first[0].logit;
    for (int32_t i = 1; i < running->n; i++) {
        if (running->first[i].logit > running->largest) {
            running->largest = running->first[i].logit;
        }
    }
}

// The `n` likeliest, or all.
static void keep_likeliest(es_running *running, int32_t n) {
    if (n >= running->n) {
        return;
    }
    es_heapify(running->first, running->n);
    for (int32_t taken = 0; taken < n; taken++) {
        es_pop(running->first, running->n - taken);
    }
    running->first += running->n - n;
    running->n = n;
}

static void keep_top_p(es_running *running, double top_p, int32_t min_keep) {
    if (top_p >= 1.0) {
        return;
    }
    const double wanted = top_p * total_weight(running);
    double taken = 0.0;
    int32_t kept = 0;
    es_heapify(running->first, running->n);
    while (kept < running->n && (kept == 0 || kept < min_keep || taken < wanted)) {
        taken += weight_of(running, 0);
        es_pop(running->first, running->n - kept);
        kept++;
    }
    running->first += running->n - kept;
    running->n = kept;
}

// Those that are scaled to no less than `least`, and of the likeliest `min_keep` in any case.
static void keep_from(es_running *running, double least, int32_t min_keep) {
    int32_t kept = 0;
    for (int32_t i = 0; i < running->n; i++) {
        kept += scaled(running, running->first[i].logit) >= least;
    }
    if (kept < min_keep) {
        keep_likeliest(running, min_keep);
        return;
    }
    const int32_t n = running->n;
    running->n = 0;
    for (int32_t i = 0; i < n; i++) {
        if (scaled(running, running->first[i].logit) >= least) {
            running->first[running->n++] = running->first[i];
        }
    }
}

// Locally typical sampling (Meister et al. 2022): those whose surprise is nearest the entropy,
// until they have more than typical_p. That surprise is the mean logit's.
static void keep_typical(es_running *running, const es_sample_row *row, const float *logits) {
    if (row->typical_p >= 1.0) {
        return;
    }
    double total;
    const double mean = mean_scaled(running, &total);
    const double centre = (double)running->largest + running->temperature * mean;
    for (int32_t i = 0; i < running->n; i++) { // nearest is likeliest, while they are sorted
        es_candidate *candidate = &running->first[i];
        candidate->logit = (float)-fabs((double)candidate->logit - centre);
    }
    double taken = 0.0;
    int32_t kept = 0;
    es_heapify(running->first, running->n);
    while (kept < running->n && (kept < row->min_keep || taken <= row->typical_p * total)) {
        taken += es_exp64(scaled(running, logits[running->first[0].id]));
        es_pop(running->first, running->n - kept);
        kept++;
    }
    running->first += running->n - kept;
    running->n = kept;
    for (int32_t i = 0; i < kept; i++) {
        running->first[i].logit = logits[running->first[i].id];
    }
    find_largest(running);
}

// Top-n-sigma (Tang et al. 2024): within n standard deviations of the largest logit.
static void keep_top_n_sigma(es_running *running, double n_sigma) {
    if (n_sigma == 0.0) {
        return;
    }
    double sum = 0.0, squares = 0.0;
    for (int32_t i = 0; i < running->n; i++) {
        sum += (double)running->first[i].logit;
    }
    const double mean = sum / running->n;
    for (int32_t i = 0; i < running->n; i++) {
        const double difference = (double)running->first[i].logit - mean;
        squares += difference * difference;
    }
    keep_from(running, -n_sigma * sqrt(squares / running->n) / running->temperature, 1);
}

// "Exclude top choices" (p-e-w): of those with at least the threshold, the least likely stays.
static void exclude_top_choices(es_running *running, const es_sample_row *row) {
    const uint64_t key = es_noise_key(row->seed, row->position, ES_XTC_STREAM);
    if (row->xtc_probability == 0.0 || row->xtc_threshold > 0.5 ||
        es_uniform(es_noise_bits(key, 0)) > row->xtc_probability) {
        return;
    }
    const double least = row->xtc_threshold * total_weight(running);
    int32_t n_top = 0;
    es_candidate last = running->first[0];
    for (int32_t i = 0; i < running->n; i++) {
        if (weight_of(running, i) >= least) {
            last = n_top == 0 || es_before(last, running->first[i]) ? running->first[i] : last;
            n_top++;
        }
    }
    if (n_top < 2 || running->n - (n_top - 1) < row->min_keep) {
        return;
    }
    int32_t kept = 0;
    for (int32_t i = 0; i < running->n; i++) {
        if (!es_before(running->first[i], last)) {
            running->first[kept++] = running->first[i];
        }
    }
    running->n = kept;
    find_largest(running);
}

// Temperature; with a range, one that grows with the share of the entropy that these tokens could
// have.
static void heat(es_running *running, const es_sample_row *row) {
    double temperature = row->temperature;
    if (row->dynatemp_range > 0.0) {
        if (running->n == 1) {
            return;
        }
        double total;
        const double mean = mean_scaled(running, &total);
        const double share = (es_log64(total) - mean) / es_log64(running->n);
        const double low =
            temperature > row->dynatemp_range ? temperature - row->dynatemp_range : 0.0;
        const double high = temperature + row->dynatemp_range;
        const double exponent = row->dynatemp_exponent;
        const double power = exponent == 0.0 ? 1.0
                             : share > 0.0   ? es_exp64(exponent * es_log64(share))
                                             : 0.0;
        temperature = low + (high - low) * power;
    }
    running->temperature *= temperature;
    if (!(running->temperature > 0.0)) {
        keep_likeliest(running, 1);
        running->temperature = 1.0;
    }
}

// Mirostat 2 (Basu et al. 2021): those that surprise by at most mu bits.
static void keep_unsurprising(es_running *running, double mu) {
    keep_from(running, es_log64(total_weight(running)) - mu * LN2, 1);
}

// Penalties, or DRY, after others: on logits that the temperature so far has divided.
static void penalise_late(es_running *running, const es_sample_row *row, int32_t sampler,
                          es_sampler_scratch *scratch) {
    for (int32_t i = 0; i < running->n; i++) {
        const es_candidate *candidate = &running->first[i];
        const double divided = (double)candidate->logit / running->temperature;
        scratch->logits[candidate->id] = (float)fmin(fmax(divided, -1e30), 1e30);
    }
    running->temperature = 1.0;
    if (sampler == ES_SAMPLER_PENALTIES) {
        es_penalise(row, scratch->logits, scratch->counts);
    } else {
        es_penalise_repeats(row, scratch->logits, scratch);
    }
    for (int32_t i = 0; i < running->n; i++) {
        float *logit = &scratch->logits[running->first[i].id];
        *logit = fminf(fmaxf(*logit, -LARGEST_LOGIT), LARGEST_LOGIT);
        running->first[i].logit = *logit;
    }
    find_largest(running);
}

static void run(es_running *running, const es_sample_row *row, int32_t sampler, double mu,
                es_sampler_scratch *scratch) {
    switch (sampler) {
    case ES_SAMPLER_TOP_N_SIGMA:
        keep_top_n_sigma(running, row->top_n_sigma);
        break;
    case ES_SAMPLER_TOP_K:
        keep_likeliest(running, row->top_k > 0 ? row->top_k : running->n);
        break;
    case ES_SAMPLER_TYPICAL_P:
        keep_typical(running, row, scratch->logits);
        break;
    case ES_SAMPLER_TOP_P:
        keep_top_p(running, row->top_p, row->min_keep);
        break;
    case ES_SAMPLER_MIN_P:
        keep_from(running, es_log64(row->min_p), row->min_keep);
        break;
    case ES_SAMPLER_XTC:
        exclude_top_choices(running, row);
        break;
    case ES_SAMPLER_TEMPERATURE:
        heat(running, row);
        break;
    case ES_SAMPLER_MIROSTAT:
        keep_unsurprising(running, mu);
        break;
    default:
        penalise_late(running, row, sampler, scratch);
    }
}

es_running es_run_samplers(const es_sample_row *row, int32_t next, double mu, int32_t vocab_size,
                           float largest, es_sampler_scratch *scratch) {
    es_running running = {scratch->candidates, 0, largest, 1.0};
    for (int32_t id = 0; id < vocab_size; id++) {
        if (scratch->logits[id] > -INFINITY) {
            running.first[running.n++] = (es_candidate){scratch->logits[id], id};
        }
    }
    for (; next < row->n_samplers; next++) {
        run(&running, row, row->samplers[next], mu, scratch);
    }
    return running;
}
