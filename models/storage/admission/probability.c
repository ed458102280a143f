/* Each Add to an absent key makes its row with the same probability.
 *
 * What decides is drawn from the seed, the key and the number of the question. So the questions of
 * one key are answered independently of each other, and a replica answers as its primary does. Keys
 * that are asked for at once have one number: a key that comes twice among them has one answer.
 *
 * Thread: the shard's present owner. */
#include <rubato/mix.h>

#include "models/spec.h"
#include "models/storage/admission/admission.h"

typedef struct {
    RubatoAdmission base;
    uint64_t seed;
    double probability;
    uint64_t n_asked;
} ProbabilityAdmission;

static bool check(const RubatoTableSpec *spec, GError **error)
{
    if (spec->admit_probability > 0 && spec->admit_probability <= 1)
        return true;
    return spec_refuse(spec, error,
                       "admit_probability is %g; \"probability\" needs one above 0, 1 at most",
                       spec->admit_probability);
}

static RubatoAdmission *create(const RubatoAdmissionSetup *setup, GError **error)
{
    ProbabilityAdmission *admission = g_new0(ProbabilityAdmission, 1);

    (void)error;
    admission->seed = setup->seed;
    admission->probability = setup->spec->admit_probability;
    return &admission->base;
}

static void destroy(RubatoAdmission *admission)
{
    g_free(admission);
}

/* The answer to the n-th question. */
static inline bool answer(const ProbabilityAdmission *admission, RubatoKey key, uint64_t n)
{
    const uint64_t random = rubato_mix64(rubato_mix64(admission->seed ^ key) + n);

    return (double)(random >> 11) < admission->probability * 0x1p53;
}

static bool admits(RubatoAdmission *base, RubatoKey key)
{
    ProbabilityAdmission *admission = (ProbabilityAdmission *)base;

    return answer(admission, key, ++admission->n_asked);
}

size_t probability_admission_choose(RubatoAdmission *base, const RubatoKey *keys,
                                    uint16_t *positions, size_t n, uint16_t *refused)
{
    ProbabilityAdmission *admission = (ProbabilityAdmission *)base;
    size_t n_admitted = 0, n_refused = 0;

    for (size_t k = 0; k < n; k++) {
        const uint16_t i = positions[k];
        const bool admits = answer(admission, keys[i], admission->n_asked + n);

        positions[n_admitted] = refused[n_refused] = i;
        n_admitted += admits;
        n_refused += !admits;
    }
    admission->n_asked += n;
    return n_admitted;
}

static uint64_t *memory(RubatoAdmission *base, size_t *n_words)
{
    *n_words = 1;
    return &((ProbabilityAdmission *)base)->n_asked;
}

/* No question has the number of one that was asked before. */
void probability_admission_merge(RubatoAdmission *base, size_t n_all, size_t first, size_t n,
                                 const uint64_t *words)
{
    ProbabilityAdmission *admission = (ProbabilityAdmission *)base;

    (void)n_all;
    for (size_t i = first; i < 1 && n > 0; i++)
        admission->n_asked = MAX(admission->n_asked, words[i]);
}

const RubatoAdmissionOps probability_admission_ops = {
    .name = "probability",
    .check = check,
    .create = create,
    .destroy = destroy,
    .admits = admits,
    .memory = memory,
};
