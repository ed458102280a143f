/* What an admission implements: which absent keys of a hash table are given a row.
 *
 * An admission is asked before an Add makes a row. It sees keys, and nothing of workers, clocks or
 * values. A program, or a plug-in file, registers one of its own: plugin.h. A built-in one is a
 * file models/storage/admission/<name>.c that ends in its constant RubatoAdmissionOps, and a line
 * in the array of models/storage/admission/admission.c.
 *
 * Threads: the shard's present owner calls the ops, one thread at a time. None may block. */
#ifndef RUBATO_ADMISSION_OPS_H
#define RUBATO_ADMISSION_OPS_H

#include <rubato/table.h>

G_BEGIN_DECLS

typedef struct RubatoAdmissionOps RubatoAdmissionOps;

/* The base of every admission: the first member of its struct. Its owner fills it in. */
typedef struct {
    const RubatoAdmissionOps *ops;
    uint64_t n_admitted; /* rows that Adds have made */
    uint64_t n_refused;  /* rows that were left out of an Add */
} RubatoAdmission;

typedef struct {
    const RubatoTableSpec *spec; /* valid only during create; admit_bytes is that of a part */
    uint64_t seed;               /* random, the same for the whole table */
} RubatoAdmissionSetup;

struct RubatoAdmissionOps {
    const char *name;

    /* Whether a table with this spec may have this admission; the error says what to write instead.
     * May be NULL. */
    bool (*check)(const RubatoTableSpec *spec, GError **error);

    /* Make one for a part of a table, with an empty base, and free it. Both may be NULL, if there
     * is nothing to remember. NULL with RUBATO_ERROR_MEMORY. (transfer full) */
    RubatoAdmission *(*create)(const RubatoAdmissionSetup *setup, GError **error);
    void (*destroy)(RubatoAdmission *admission);

    /* Whether an Add makes the row of an absent key. Asked once for each row of the Add. All that
     * the answer follows from is the key, setup, and the questions before: so a replica answers
     * likewise. */
    bool (*admits)(RubatoAdmission *admission, RubatoKey key);

    /* Prefetches what `admits` will read for a key that is asked for soon. May be NULL. */
    void (*prefetch)(const RubatoAdmission *admission, RubatoKey key);

    /* The memory in which the answers to come are founded, as an array of 8-byte words. It goes
     * along with a part that moves, and into snapshots: a table that has the same parts, and gives
     * each as many words, gets it back. Its address and length never change. May be NULL: there is
     * none. */
    uint64_t *(*memory)(RubatoAdmission *admission, size_t *n_words);
};

/* For storages: prefetches for the keys without a row, if the admission can; then asks for one, and
 * counts the answer. */
RUBATO_API void rubato_admission_prefetch(const RubatoAdmission *admission, const RubatoKey *keys,
                                          size_t n, void *const *rows);
RUBATO_API bool rubato_admission_admits(RubatoAdmission *admission, RubatoKey key);

G_END_DECLS

#endif
