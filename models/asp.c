/* ASP: every Add is applied and every Get answered at once.
 *
 * Thread: the shard's present owner. Nothing is ever kept. */
#include <rubato/model_ops.h>

static RubatoModel *create(const RubatoModelSetup *setup, GError **error)
{
    (void)setup;
    (void)error;
    return g_new0(RubatoModel, 1);
}

static void destroy(RubatoModel *model)
{
    g_free(model);
}

static void add(RubatoModel *model, RubatoRequest *request)
{
    rubato_model_apply(model, request);
    rubato_model_finish(model, request);
}

const RubatoModelOps asp_model_ops = {
    .name = "asp",
    .traits = { .lead = RUBATO_LEAD_UNBOUNDED, .lazy_clocks = true },
    .create = create,
    .destroy = destroy,
    .get = rubato_model_answer,
    .add = add,
};
