/* A shard for those who drive it by hand.
 *
 * Threads: one at a time. */
#include <rubato/shard_driver.h>

#include "models/shard/shard_private.h"
#include "models/spec.h"
#include "models/update/rule.h"

struct RubatoShardDriver {
    RubatoShard *shard;
    bool is_starved; /* the last call had not enough memory */
};

RubatoShardDriver *rubato_shard_driver_new(const RubatoShardDriverSetup *setup, GError **error)
{
    if (!spec_check(setup->spec, error))
        return NULL;
    RubatoShard *shard =
        shard_new_seeded(setup->spec, setup->first_key, setup->n_keys, setup->hash_seed, error);
    if (shard == NULL)
        return NULL;

    RubatoShardDriver *driver = g_new0(RubatoShardDriver, 1);
    driver->shard = shard;
    shard_set_alarm(shard, &driver->is_starved);
    return driver;
}

void rubato_shard_driver_free(RubatoShardDriver *driver)
{
    if (driver == NULL)
        return;
    shard_free(driver->shard);
    g_free(driver);
}

/* Whether all that was called since the last time had memory. */
static bool was_fed(RubatoShardDriver *driver)
{
    const bool fed = !driver->is_starved;

    driver->is_starved = false;
    return fed;
}

void rubato_shard_driver_get(RubatoShardDriver *driver, const RubatoKeys *keys, void *values)
{
    shard_get(driver->shard, keys, values);
    (void)was_fed(driver); /* an absent row was read all the same */
}

bool rubato_shard_driver_add(RubatoShardDriver *driver, uint32_t worker, const RubatoKeys *keys,
                             const void *deltas)
{
    shard_add_by(driver->shard, worker, keys, deltas);
    return was_fed(driver);
}

bool rubato_shard_driver_set(RubatoShardDriver *driver, const RubatoKeys *keys, const void *values)
{
    shard_set(driver->shard, keys, values);
    return was_fed(driver);
}

bool rubato_shard_driver_get_state(RubatoShardDriver *driver, const RubatoKeys *keys, void *states)
{
    shard_get_state(driver->shard, keys, states);
    return was_fed(driver);
}

bool rubato_shard_driver_set_state(RubatoShardDriver *driver, const RubatoKeys *keys,
                                   const void *states)
{
    shard_set_state(driver->shard, keys, states);
    return was_fed(driver);
}

void rubato_shard_driver_reset(RubatoShardDriver *driver, const RubatoKeys *keys)
{
    shard_reset(driver->shard, keys);
}

bool rubato_shard_driver_tune(RubatoShardDriver *driver, RubatoHyper hyper, double value,
                              GError **error)
{
    const RubatoTuning tuning = { hyper, value };

    if (!rule_check_tuning(driver->shard->spec, hyper, value, error))
        return false;
    shard_tune(driver->shard, &tuning);
    return true;
}

RubatoBadGradients rubato_shard_driver_bad_gradients(const RubatoShardDriver *driver,
                                                     uint32_t worker)
{
    const BadGradients *bad = shard_bad_gradients(driver->shard);
    const uint32_t number = worker + 1; /* 0 of BAD_GRADIENTS_NO_WORKER */
    BadCounts counts = { 0 };

    if (number < bad_gradients_length(bad))
        bad_gradients_read(bad, number, 1, &counts);
    return (RubatoBadGradients){ .worker = worker,
                                 .n_nan = counts.n_nan,
                                 .n_infinite = counts.n_infinite,
                                 .n_large = counts.n_large,
                                 .n_refused_rows = counts.n_refused_rows };
}

RubatoStorage *rubato_shard_driver_storage(RubatoShardDriver *driver)
{
    return driver->shard->storage;
}

const RubatoInit *rubato_shard_driver_init(const RubatoShardDriver *driver)
{
    return &driver->shard->init;
}

const RubatoUpdateOps *rubato_shard_driver_update_ops(const RubatoShardDriver *driver)
{
    return driver->shard->updater.ops;
}

const RubatoUpdate *rubato_shard_driver_update(const RubatoShardDriver *driver)
{
    return &driver->shard->updater.update;
}
