/* The tests as cases of check. The rest of the kit does without check, so a program that only wants
 * the stories needs no check either: this file is an object of its own in the archive.
 *
 * Thread: that of the test case. */
#include <check.h>
#include <rubato/testing.h>
#include <string.h>

#define MAX_MESSAGE 3000 /* bytes; check takes somewhat more */

/* Fails the case if there is a story. (transfer full) */
static void judge(char *text)
{
    g_autofree char *story = text;

    if (story == NULL)
        return;
    if (strlen(story) <= MAX_MESSAGE)
        ck_abort_msg("%s", story);
    g_printerr("%s", story);
    ck_abort_msg("%.*s (standard error has the story)", (int)strcspn(story, "\n"), story);
}

void rubato_test_model(const RubatoModelTest *test)
{
    judge(rubato_test_model_story(test));
}

void rubato_test_storage(const RubatoStorageTest *test)
{
    judge(rubato_test_storage_story(test));
}

void rubato_test_cluster(const RubatoClusterTest *test)
{
    judge(rubato_test_cluster_story(test));
}

void rubato_test_update_rule(const RubatoUpdateRuleTest *test)
{
    judge(rubato_test_update_rule_story(test));
}
