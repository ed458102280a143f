/* The known word that the user probably meant, for messages that ask "did you mean".
 *
 * Threads: any. */
#ifndef RUBATO_ENGINE_CLUSTER_NEAREST_WORD_H
#define RUBATO_ENGINE_CLUSTER_NEAREST_WORD_H

/* Of the known words, whose list ends in NULL, the one that is most like `word`; NULL if none is
 * like it. Upper and lower case are alike. (transfer none) */
const char *nearest_word(const char *word, const char *const *known);

#endif
