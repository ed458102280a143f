#include "tests/support/engine/fitting_spec.h"

RubatoTableSpec fitting_spec(RubatoTableSpec spec)
{
    const RubatoModelTraits *model = rubato_model_traits(spec.model);

    if (model->lead != RUBATO_LEAD_STALENESS)
        spec.staleness = 0;
    if (!model->takes_announcements) {
        spec.speculation = 0;
        spec.record = NULL;
    }
    if (!model->rows_may_be_cached)
        spec.cache = RUBATO_CACHE_NONE;
    if (!rubato_table_spec_holds_range(&spec))
        spec.first_key = spec.n_keys = 0;
    else
        spec.create_on_get = false;
    if (g_strcmp0(spec.init, "uniform") != 0)
        spec.init_low = spec.init_high = 0;
    if (g_strcmp0(spec.init, "normal") != 0 && g_strcmp0(spec.init, "zero_normal") != 0)
        spec.init_mean = spec.init_stddev = 0;
    if (g_strcmp0(spec.init, "zero_normal") != 0)
        spec.init_zero_every = 0;
    if (spec.init != NULL && !g_str_equal(spec.init, "constant"))
        spec.init_value = 0;
    return spec;
}
