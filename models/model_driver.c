/* A shard and a model, for those who drive them by hand.
 *
 * Threads: one at a time. */
#include <rubato/model_driver.h>

#include <assert.h>

#include "models/model.h"
#include "models/shard/shard.h"
#include "models/spec.h"

struct RubatoModelDriver {
    RubatoShard *shard;
    RubatoModel *model; /* NULL: the task has ended */
};

RubatoModelDriver *rubato_model_driver_new(const RubatoModelDriverSetup *setup, GError **error)
{
    const RubatoModelSetup model_setup = { .spec = setup->spec,
                                           .n_workers = setup->n_workers,
                                           .first_key = setup->first_key,
                                           .n_keys = setup->n_keys };

    g_return_val_if_fail(setup->n_workers > 0 && setup->n_nodes > 0, NULL);
    if (!spec_check(setup->spec, error))
        return NULL;

    RubatoModelDriver *driver = g_new0(RubatoModelDriver, 1);
    driver->shard = shard_new(setup->spec, setup->first_key, setup->n_keys, error);
    if (driver->shard != NULL)
        driver->model = model_new(&model_setup, driver->shard, setup->n_nodes, error);
    if (driver->model == NULL)
        g_clear_pointer(&driver, rubato_model_driver_free);
    return driver;
}

void rubato_model_driver_free(RubatoModelDriver *driver)
{
    if (driver == NULL)
        return;
    g_return_if_fail(driver->model == NULL);
    if (driver->shard != NULL)
        shard_free(driver->shard);
    g_free(driver);
}

void rubato_model_driver_get(RubatoModelDriver *driver, RubatoRequest *request)
{
    model_get(driver->model, request);
}

void rubato_model_driver_add(RubatoModelDriver *driver, RubatoRequest *request)
{
    model_add(driver->model, request);
}

void rubato_model_driver_announce(RubatoModelDriver *driver, RubatoRequest *request)
{
    model_announce(driver->model, request);
}

void rubato_model_driver_clock(RubatoModelDriver *driver, uint32_t source, uint64_t clock)
{
    model_clock(driver->model, source, clock);
}

RubatoRequest *rubato_model_driver_take(RubatoModelDriver *driver)
{
    return model_take_answered(driver->model);
}

uint64_t rubato_model_driver_min_clock(const RubatoModelDriver *driver)
{
    return rubato_model_min_clock(driver->model);
}

RubatoRequest *rubato_model_driver_end(RubatoModelDriver *driver)
{
    RubatoRequest *parked = model_free(driver->model);

    driver->model = NULL;
    return parked;
}

void rubato_model_driver_read(RubatoModelDriver *driver, const RubatoKeys *keys, void *values)
{
    shard_get(driver->shard, keys, values);
}
