#include "tests/support/engine/eager_model.h"

static RubatoModel *create_model(const RubatoModelSetup *setup, GError **error)
{
    (void)setup;
    (void)error;
    return g_new0(RubatoModel, 1);
}

static void destroy_model(RubatoModel *model)
{
    g_free(model);
}

static void get(RubatoModel *model, RubatoRequest *request)
{
    rubato_model_answer(model, request);
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    rubato_model_apply(model, request);
    rubato_model_finish(model, request);
}

const RubatoModelOps eager_model = {
    .name = "eager",
    .traits = { .lead = RUBATO_LEAD_UNBOUNDED },
    .create = create_model,
    .destroy = destroy_model,
    .get = get,
    .add = add,
};
