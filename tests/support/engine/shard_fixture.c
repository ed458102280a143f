#include "tests/support/engine/shard_fixture.h"
#include "tests/support/engine/fitting_spec.h"

#include <check.h>

#include "models/spec.h"

RubatoShard *shard_make(RubatoTableSpec *spec, const char *storage, uint64_t n_keys)
{
    g_autoptr(GError) error = NULL;

    spec->name = "rows";
    spec->storage = storage;
    spec->first_key = SHARD_FIRST_KEY;
    spec->n_keys = n_keys;
    *spec = fitting_spec(*spec);
    ck_assert_msg(spec_check(spec, &error), "%s", error == NULL ? "" : error->message);
    RubatoShard *shard = shard_new(spec, SHARD_FIRST_KEY, n_keys, &error);
    ck_assert_msg(shard != NULL, "%s", error == NULL ? "" : error->message);
    return shard;
}
