/* The admissions that there are, and one of a shard. See rubato/admission_ops.h.
 *
 * Threads: any for the first two functions, else the shard's present owner. */
#ifndef RUBATO_MODELS_STORAGE_ADMISSION_ADMISSION_H
#define RUBATO_MODELS_STORAGE_ADMISSION_ADMISSION_H

#include <rubato/admission_ops.h>

/* NULL for an unknown name. */
const RubatoAdmissionOps *admission_find(const char *name);

/* The name of the i-th admission, NULL past the last. */
const char *admission_name(size_t i);

/* (transfer full) */
RubatoAdmission *admission_new(const RubatoAdmissionOps *ops, const RubatoAdmissionSetup *setup,
                               GError **error);
void admission_free(RubatoAdmission *admission);

/* Its memory; NULL and 0 words if it has none. */
uint64_t *admission_memory(RubatoAdmission *admission, size_t *n_words);

/* Of what may be chosen. */
extern const RubatoAdmissionOps count_admission_ops, list_admission_ops, probability_admission_ops;

#endif
