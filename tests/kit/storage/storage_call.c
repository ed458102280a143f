/* The calls of a storage test: which keys an action names, and in which form.
 *
 * Thread: that of the test case. */
#include <rubato/mix.h>
#include <string.h>

#include "tests/kit/storage/storage_world_private.h"
#include "tests/kit/values.h"

RubatoKey storage_key(const StorageScenario *scenario, uint32_t number)
{
    if (scenario->holds_range)
        return scenario->spec.first_key + number % scenario->spec.n_keys;
    if (number < 2)
        return number == 0 ? 0 : UINT64_MAX;
    switch (number % 5) {
    case 0:
        return number;
    case 1:
        return UINT64_MAX - number;
    case 2:
        return (uint64_t)number << 40;
    case 3:
        return number * UINT64_C(1000);
    default:
        return rubato_mix64(number);
    }
}

RubatoKey call_key(const RubatoKeys *keys, size_t i)
{
    return keys->keys == NULL ? keys->first + i : keys->keys[keys->at == NULL ? i : keys->at[i]];
}

unsigned char *call_row(const Call *call, size_t i)
{
    return call->values + (call->keys.at == NULL ? i : call->keys.at[i]) * call->row_bytes;
}

uint64_t storage_keys_from(const StorageScenario *scenario, RubatoKey first)
{
    if (scenario->holds_range)
        return scenario->spec.first_key + (scenario->spec.n_keys - 1) - first + 1;
    return first == 0 ? UINT64_MAX : UINT64_MAX - first + 1;
}

/* A selection goes backwards through a list in which every second key is nobody's. */
static void fill_selection(Call *call, const StorageScenario *scenario, const StorageAction *action)
{
    call->n_rows = 2u * action->n_keys;
    call->list = g_new(RubatoKey, call->n_rows + 1);
    call->at = g_new(uint32_t, action->n_keys + 1u);
    for (uint32_t i = 0; i < call->n_rows; i++)
        call->list[i] = storage_key(scenario, action->keys[i / 2]);
    for (uint32_t i = 0; i < action->n_keys; i++)
        call->at[i] = 2u * (action->n_keys - 1u - i);
    call->keys = (RubatoKeys){ .keys = call->list, .at = call->at, .n = action->n_keys };
}

Call call_new(const StorageWorld *world, const StorageAction *action, size_t row_bytes)
{
    const StorageScenario *scenario = world->scenario;
    const bool is_series = action->form == STORAGE_FORM_SERIES;
    Call call = { .row_bytes = row_bytes };

    if (action->form == STORAGE_FORM_SELECTION) {
        fill_selection(&call, scenario, action);
    } else if (action->form == STORAGE_FORM_RUN) {
        call.keys.first = storage_key(scenario, action->keys[0]);
        const uint64_t most = storage_keys_from(scenario, call.keys.first);

        call.keys.n = MIN(action->count, most);
    } else {
        call.keys.n = is_series ? action->count : action->n_keys;
        call.list = g_new(RubatoKey, call.keys.n + 1);
        for (uint32_t i = 0; i < call.keys.n; i++)
            call.list[i] = storage_key(scenario, is_series ? action->keys[0] + i : action->keys[i]);
        call.keys.keys = call.list;
    }
    if (action->form != STORAGE_FORM_SELECTION)
        call.n_rows = call.keys.n;
    call.values = g_malloc(call.n_rows * row_bytes + 1);
    memset(call.values, UNTOUCHED, call.n_rows * row_bytes + 1);
    return call;
}

void call_clear(Call *call)
{
    g_free(call->list);
    g_free(call->at);
    g_free(call->values);
}

void call_fill(const StorageWorld *world, Call *call, uint32_t mark)
{
    const RubatoDtype dtype = world->scenario->spec.dtype;

    values_fill(dtype, call->values, call->n_rows * call->row_bytes / rubato_dtype_size(dtype),
                mark);
}
