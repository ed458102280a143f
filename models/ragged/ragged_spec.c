/* Specs of tables whose rows have different lengths.
 *
 * Any thread. */
#include "models/ragged/ragged.h"

#include "models/model.h"
#include "models/spec.h"
#include "models/storage/admission/admission.h"
#include "models/storage/expiry/expiry.h"

RubatoTableSpec ragged_row_spec(const RubatoTableSpec *spec)
{
    RubatoTableSpec row = *spec;

    G_STATIC_ASSERT(sizeof(RaggedRow) == sizeof(int64_t));
    row.dtype = RUBATO_I64;
    row.width = 1;
    row.update = row.init = NULL;
    row.rule = (RubatoRule){ 0 };
    return row;
}

bool ragged_check_spec(const RubatoTableSpec *spec, GError **error)
{
    const struct {
        bool is_given;
        const char *field;
    } fields[] = {
        { spec->width > 1, "width" },
        { spec->chunk_size > 1, "chunk_size" },
        { spec->create_on_get, "create_on_get" },
        { spec->max_bytes > 0, "max_bytes" },
        { admission_find(spec_admit_name(spec)) != NULL, "admit" },
        { expiry_find(spec_expire_name(spec)) != NULL, "expire" },
        { spec->cache == RUBATO_CACHE_ALL, "cache" },
        { spec->aggregate != RUBATO_AGGREGATE_NONE, "aggregate" },
        { spec->init != NULL, "init" },
        { spec->init_value != 0, "init_value" },
        { spec->update != NULL, "update" },
        { spec->rule.max_gradient != 0, "max_gradient" },
        { spec->rule.on_bad_gradient != RUBATO_ON_BAD_GRADIENT_DEFAULT, "on_bad_gradient" },
    };

    if (spec->shape != RUBATO_SHAPE_RAGGED)
        return true;
    for (size_t i = 0; i < G_N_ELEMENTS(fields); i++)
        if (fields[i].is_given)
            return spec_refuse_idle(spec, fields[i].field, "rows of one length", error);
    if (model_traits(spec)->takes_announcements)
        return spec_refuse(spec, error,
                           "the model \"%s\" goes by the keys that workers announce, and nobody "
                           "announces those of ragged rows; take \"asp\", \"bsp\" or \"ssp\"",
                           spec_model_name(spec));
    return true;
}
