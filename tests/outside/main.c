/* The smallest program outside the project. */
#include "words.h"

#include <stdlib.h>

int main(void)
{
    g_print("%s\n", message_copy(RUBATO_F32));
    return EXIT_SUCCESS;
}
