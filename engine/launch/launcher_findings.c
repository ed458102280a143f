/* A list of findings: see launcher_findings.h. */
#include "engine/launch/launcher_findings.h"

static void finding_free(gpointer data)
{
    RubatoFinding *const finding = data;

    g_free(finding->text);
    g_free(finding->advice);
    g_free(finding);
}

GPtrArray *findings_new(void)
{
    return g_ptr_array_new_with_free_func(finding_free);
}

void findings_add(GPtrArray *findings, const char *name, char *text)
{
    findings_add_fault(findings, name, text, RUBATO_FINDING_FINE, NULL);
}

void findings_add_fault(GPtrArray *findings, const char *name, char *text, RubatoFindingState state,
                        char *advice)
{
    RubatoFinding *const finding = g_new(RubatoFinding, 1);

    *finding = (RubatoFinding){ .name = name, .text = text, .state = state, .advice = advice };
    g_ptr_array_add(findings, finding);
}
