#include "tests/support/engine/expiring_rows.h"

#include "models/spec.h"
#include "tests/support/runner.h"

const RubatoTableSpec expiring_shapes[N_EXPIRING_SHAPES] = {
    { .width = 1 },
    { .width = 40 },
    { .width = 1, .dtype = RUBATO_F64 },
    { .width = 3, .dtype = RUBATO_I64 },
    { .width = 2, .update = "adagrad", .rule = { .learning_rate = 1 } },
    { .width = 1, .max_bytes = 16 << 20, .evict = "lfu" },
    { .width = 40, .max_bytes = 16 << 20 },
};

RubatoTableSpec expiring_by_clocks(RubatoTableSpec spec, uint32_t after)
{
    spec.expire = "clocks";
    spec.expire_after = after;
    if (spec.update == NULL) {
        spec.init = "constant";
        spec.init_value = 100;
    }
    return spec;
}

void fill_row(const RubatoTableSpec *spec, void *row, int number)
{
    for (uint32_t i = 0; i < spec_width(spec); i++)
        switch (spec->dtype) {
        case RUBATO_F32:
            ((float *)row)[i] = (float)number;
            break;
        case RUBATO_F64:
            ((double *)row)[i] = number;
            break;
        default:
            ((int64_t *)row)[i] = number;
            break;
        }
}

double read_row(const RubatoTableSpec *spec, const void *row)
{
    double first = 0;

    for (uint32_t i = 0; i < spec_width(spec); i++) {
        const double value = spec->dtype == RUBATO_F32   ? (double)((const float *)row)[i]
                             : spec->dtype == RUBATO_F64 ? ((const double *)row)[i]
                                                         : (double)((const int64_t *)row)[i];

        if (i == 0)
            first = value;
        require_msg(value == first, "value %u of a row is %g, and the first %g", i, value, first);
    }
    return first;
}

double get_number(RubatoShard *shard, RubatoKey key)
{
    g_autofree void *row = g_malloc(spec_row_bytes(shard_spec(shard)));

    shard_get(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
    return read_row(shard_spec(shard), row);
}

void add_number(RubatoShard *shard, RubatoKey key, int delta)
{
    g_autofree void *row = g_malloc(spec_row_bytes(shard_spec(shard)));

    fill_row(shard_spec(shard), row, delta);
    shard_add(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
}

void set_number(RubatoShard *shard, RubatoKey key, int number)
{
    g_autofree void *row = g_malloc(spec_row_bytes(shard_spec(shard)));

    fill_row(shard_spec(shard), row, number);
    shard_set(shard, &(RubatoKeys){ .keys = &key, .n = 1 }, row);
}

bool sweep_some(RubatoShard *shard)
{
    uint32_t n_looks = 512;

    return shard_sweep(shard, &n_looks);
}

void sweep_all(RubatoShard *shard)
{
    while (sweep_some(shard))
        continue;
}

uint64_t n_expired(const RubatoShard *shard)
{
    return shard_uses(shard).n_expired;
}
