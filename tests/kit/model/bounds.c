/* The bounds of the built-in models, and what the traits of another one promise.
 *
 * Thread: any. */
#include <rubato/testing.h>

#include <string.h>

/* Whether the clock is at most `lead` ahead. */
static bool is_within(uint64_t clock, uint64_t min, uint64_t lead)
{
    return clock <= min || clock - min <= lead;
}

static bool is_due_at_once(const RubatoTestView *view, const RubatoRequest *get, void *user)
{
    (void)view;
    (void)get;
    (void)user;
    return true;
}

/* "bsp", whose staleness is 0, and "ssp". */
static bool is_due_by_clock(const RubatoTestView *view, const RubatoRequest *get, void *user)
{
    (void)user;
    return is_within(get->clock, rubato_test_view_min_clock(view),
                     rubato_test_view_spec(view)->staleness);
}

static bool is_due_without_staleness(const RubatoTestView *view, const RubatoRequest *get,
                                     void *user)
{
    (void)user;
    return get->clock <= rubato_test_view_min_clock(view);
}

static RubatoKey key_of(const RubatoKeys *keys, size_t i)
{
    return keys->keys == NULL ? keys->first + i : keys->keys[keys->at == NULL ? i : keys->at[i]];
}

/* Whether another worker's unfinished iteration below `end` may use one of the keys. */
static bool conflicts(const RubatoTestView *view, const RubatoRequest *get, uint64_t end)
{
    for (uint32_t worker = 0; worker < rubato_test_view_n_workers(view); worker++) {
        const uint64_t clock = rubato_test_view_clock(view, worker);

        if (worker == get->worker || clock == RUBATO_CLOCK_RETIRED)
            continue;
        for (uint64_t iteration = clock; iteration < end; iteration++) {
            if (!rubato_test_view_has_told(view, worker, iteration))
                return true;
            for (size_t i = 0; i < get->keys.n; i++)
                if (rubato_test_view_uses(view, worker, iteration, key_of(&get->keys, i)))
                    return true;
        }
    }
    return false;
}

static bool is_due_without_conflict(const RubatoTestView *view, const RubatoRequest *get,
                                    void *user)
{
    const RubatoTableSpec *spec = rubato_test_view_spec(view);
    const uint64_t min = rubato_test_view_min_clock(view);

    (void)user;
    return is_within(get->clock, min, spec->staleness) ||
           (is_within(get->clock, min, (uint64_t)spec->staleness + spec->speculation) &&
            !conflicts(view, get, get->clock - spec->staleness));
}

static RubatoTestBounds bounds_of_traits(const RubatoTableSpec *spec)
{
    const RubatoModelTraits *traits = rubato_model_traits(spec->model);

    if (traits == NULL)
        return (RubatoTestBounds){ 0 };
    const bool has_lead = traits->lead != RUBATO_LEAD_UNBOUNDED;
    const uint64_t staleness = traits->lead == RUBATO_LEAD_NONE ? 0 : spec->staleness;
    return (RubatoTestBounds){
        .has_lead = has_lead,
        .lead = staleness + (traits->takes_announcements ? spec->speculation : 0),
        .has_staleness = has_lead && !traits->takes_announcements,
        .staleness = staleness,
        .sees_own = !traits->applies_by_clock,
        .is_exact = traits->applies_by_clock && traits->lead == RUBATO_LEAD_NONE
    };
}

RubatoTestBounds rubato_test_bounds(const RubatoTableSpec *spec)
{
    const char *model = spec->model == NULL ? "asp" : spec->model;

    if (strcmp(model, "bsp") == 0)
        return (RubatoTestBounds){ .has_lead = true,
                                   .is_exact = true,
                                   .is_due = is_due_without_staleness };
    if (strcmp(model, "ssp") == 0)
        return (RubatoTestBounds){ .has_lead = true,
                                   .lead = spec->staleness,
                                   .has_staleness = true,
                                   .staleness = spec->staleness,
                                   .sees_own = true,
                                   .is_due = is_due_by_clock };
    if (strcmp(model, "sparse_ssp") == 0)
        return (RubatoTestBounds){ .has_lead = true,
                                   .lead = (uint64_t)spec->staleness + spec->speculation,
                                   .has_staleness = true,
                                   .staleness = spec->staleness,
                                   .sees_own = true,
                                   .is_due = is_due_without_conflict };
    if (strcmp(model, "asp") == 0)
        return (RubatoTestBounds){ .sees_own = true, .is_due = is_due_at_once };
    return bounds_of_traits(spec);
}
