/* The list of admissions: the built-in ones, then those that the program has registered.
 *
 * Thread: any. */
#include "models/storage/admission/admission.h"

#include <string.h>

#include "models/registry.h"

static const RubatoAdmissionOps *const admissions[] = { &count_admission_ops, &list_admission_ops,
                                                        &probability_admission_ops };

const RubatoAdmissionOps *admission_find(const char *name)
{
    for (size_t i = 0; i < G_N_ELEMENTS(admissions); i++)
        if (strcmp(admissions[i]->name, name) == 0)
            return admissions[i];
    return registry_find(REGISTRY_ADMISSIONS, name);
}

const char *admission_name(size_t i)
{
    return i < G_N_ELEMENTS(admissions)
               ? admissions[i]->name
               : registry_name(REGISTRY_ADMISSIONS, i - G_N_ELEMENTS(admissions));
}

RubatoAdmission *admission_new(const RubatoAdmissionOps *ops, const RubatoAdmissionSetup *setup,
                               GError **error)
{
    RubatoAdmission *admission =
        ops->create == NULL ? g_new0(RubatoAdmission, 1) : ops->create(setup, error);

    if (admission != NULL)
        *admission = (RubatoAdmission){ .ops = ops };
    return admission;
}

void admission_free(RubatoAdmission *admission)
{
    if (admission == NULL)
        return;
    if (admission->ops->destroy != NULL)
        admission->ops->destroy(admission);
    else
        g_free(admission);
}

bool admission_can_choose(const RubatoAdmission *admission)
{
    for (size_t i = 0; i < G_N_ELEMENTS(admissions); i++)
        if (admission->ops == admissions[i])
            return true;
    return false;
}

size_t admission_choose(RubatoAdmission *admission, const RubatoKey *keys, uint16_t *positions,
                        size_t n, uint16_t *refused)
{
    AdmissionChoose *const choose = admission->ops == &count_admission_ops ? count_admission_choose
                                    : admission->ops == &list_admission_ops
                                        ? list_admission_choose
                                        : probability_admission_choose;
    const size_t n_admitted = choose(admission, keys, positions, n, refused);

    admission->n_admitted += n_admitted;
    admission->n_refused += n - n_admitted;
    return n_admitted;
}

bool admission_admits_rows(const RubatoAdmission *admission)
{
    return admission->ops == &count_admission_ops && count_admission_admits_rows(admission);
}

void admission_note_change(RubatoAdmission *admission)
{
    if (admission->ops == &count_admission_ops)
        count_admission_note_change(admission);
}

uint64_t *admission_memory(RubatoAdmission *admission, size_t *n_words)
{
    *n_words = 0;
    return admission->ops->memory == NULL ? NULL : admission->ops->memory(admission, n_words);
}

bool admission_knows_words(const RubatoAdmission *admission)
{
    return admission->ops->memory == NULL || admission->ops == &count_admission_ops;
}

AdmissionWords admission_words_of(const RubatoAdmission *admission, RubatoKey key)
{
    return admission->ops == &count_admission_ops ? count_admission_words_of(admission, key)
                                                  : (AdmissionWords){ 0 };
}

AdmissionWords admission_words_aged(const RubatoAdmission *admission, uint64_t n_refused)
{
    return admission->ops == &count_admission_ops ? count_admission_words_aged(admission, n_refused)
                                                  : (AdmissionWords){ 0 };
}

bool admission_merge(RubatoAdmission *admission, size_t n_all, size_t first, size_t n,
                     const uint64_t *words)
{
    if (admission->ops == &count_admission_ops)
        count_admission_merge(admission, n_all, first, n, words);
    else if (admission->ops == &probability_admission_ops)
        probability_admission_merge(admission, n_all, first, n, words);
    else
        return false;
    return true;
}

void rubato_admission_prefetch(const RubatoAdmission *admission, const RubatoKey *keys, size_t n,
                               void *const *rows)
{
    if (admission->ops->prefetch == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        if (rows[i] == NULL)
            admission->ops->prefetch(admission, keys[i]);
}

bool rubato_admission_admits(RubatoAdmission *admission, RubatoKey key)
{
    const bool admits = admission->ops->admits(admission, key);

    admission->n_admitted += admits;
    admission->n_refused += !admits;
    return admits;
}
