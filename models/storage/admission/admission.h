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

/* Whether all keys of an Add may be asked for at once: an admission that admits a key admits it
 * again, if it comes twice. So do the built-in ones. */
bool admission_can_choose(const RubatoAdmission *admission);

/* Asks such an admission for the keys at n positions, and counts the answers. `positions` keeps
 * those of the admitted keys, whose number is returned; those of the others go to `refused`. n is
 * at most RUBATO_STORAGE_BLOCK; both arrays have room for as many. */
size_t admission_choose(RubatoAdmission *admission, const RubatoKey *keys, uint16_t *positions,
                        size_t n, uint16_t *refused);

/* What each of them has for this: the same without the counts. */
typedef size_t AdmissionChoose(RubatoAdmission *admission, const RubatoKey *keys,
                               uint16_t *positions, size_t n, uint16_t *refused);
AdmissionChoose count_admission_choose, list_admission_choose, probability_admission_choose;

/* Whether it would admit each key that it has ever admitted, and counts nothing for such a key.
 * Only counts that have neither aged nor been changed say so. */
bool admission_admits_rows(const RubatoAdmission *admission);
bool count_admission_admits_rows(const RubatoAdmission *admission);

/* It has other memory than its own, or begins anew while there are rows that it does not know. */
void admission_note_change(RubatoAdmission *admission);
void count_admission_note_change(RubatoAdmission *admission);

/* Its memory; NULL and 0 words if it has none. */
uint64_t *admission_memory(RubatoAdmission *admission, size_t *n_words);

/* Words of its memory. */
typedef struct {
    size_t first, n;
} AdmissionWords;

/* Whether the two functions below know which words change: of no memory, or of counts. */
bool admission_knows_words(const RubatoAdmission *admission);

/* The words that change at most when it is asked for a key; and besides, when it refuses an Add,
 * after which it has refused so many. */
AdmissionWords admission_words_of(const RubatoAdmission *admission, RubatoKey key);
AdmissionWords admission_words_aged(const RubatoAdmission *admission, uint64_t n_refused);
AdmissionWords count_admission_words_of(const RubatoAdmission *admission, RubatoKey key);
AdmissionWords count_admission_words_aged(const RubatoAdmission *admission, uint64_t n_refused);

/* Adds what another admission of the same name and seed answered from to what this one does, so
 * that no key is counted fewer times than by either. n of its n_all words come, from word `first`
 * on. False: an admission that was registered stays as it is, because only it knows what its words
 * mean. */
bool admission_merge(RubatoAdmission *admission, size_t n_all, size_t first, size_t n,
                     const uint64_t *words);
void count_admission_merge(RubatoAdmission *admission, size_t n_all, size_t first, size_t n,
                           const uint64_t *words);
void probability_admission_merge(RubatoAdmission *admission, size_t n_all, size_t first, size_t n,
                                 const uint64_t *words);

/* Of what may be chosen. */
extern const RubatoAdmissionOps count_admission_ops, list_admission_ops, probability_admission_ops;

#endif
