/* The keys of a list have rows, and no others.
 *
 * The list is sorted and searched by halves: an Add asks for keys without a row alone, so those of
 * the list are looked for once each.
 *
 * Thread: the shard's present owner. */
#include <rubato/error.h>
#include <stdlib.h>
#include <string.h>

#include "models/spec.h"
#include "models/storage/admission/admission.h"

typedef struct {
    RubatoAdmission base;
    size_t n;
    RubatoKey keys[];
} ListAdmission;

static bool check(const RubatoTableSpec *spec, GError **error)
{
    if (spec->n_admit_keys > 0 && spec->admit_keys != NULL)
        return true;
    return spec_refuse(spec, error, "\"list\" needs admit_keys, and n_admit_keys above 0");
}

static int compare(const void *a, const void *b)
{
    const RubatoKey left = *(const RubatoKey *)a, right = *(const RubatoKey *)b;

    return left < right ? -1 : left > right;
}

static RubatoAdmission *create(const RubatoAdmissionSetup *setup, GError **error)
{
    const RubatoTableSpec *spec = setup->spec;
    const size_t n_bytes = spec->n_admit_keys * sizeof *spec->admit_keys;
    ListAdmission *admission = g_try_malloc0(sizeof *admission + n_bytes);

    if (admission == NULL) {
        g_set_error(error, RUBATO_ERROR, RUBATO_ERROR_MEMORY,
                    "table %s: no memory for a list of %zu keys", spec->name, spec->n_admit_keys);
        return NULL;
    }
    admission->n = spec->n_admit_keys;
    memcpy(admission->keys, spec->admit_keys, n_bytes);
    qsort(admission->keys, admission->n, sizeof *admission->keys, compare);
    return &admission->base;
}

static void destroy(RubatoAdmission *admission)
{
    g_free(admission);
}

static bool admits(RubatoAdmission *base, RubatoKey key)
{
    const ListAdmission *admission = (const ListAdmission *)base;

    return bsearch(&key, admission->keys, admission->n, sizeof key, compare) != NULL;
}

size_t list_admission_choose(RubatoAdmission *base, const RubatoKey *keys, uint16_t *positions,
                             size_t n, uint16_t *refused)
{
    size_t n_admitted = 0, n_refused = 0;

    for (size_t k = 0; k < n; k++) {
        const uint16_t i = positions[k];
        const bool is_listed = admits(base, keys[i]);

        positions[n_admitted] = refused[n_refused] = i;
        n_admitted += is_listed;
        n_refused += !is_listed;
    }
    return n_admitted;
}

const RubatoAdmissionOps list_admission_ops = {
    .name = "list", .check = check, .create = create, .destroy = destroy, .admits = admits
};
