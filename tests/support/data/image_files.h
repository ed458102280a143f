/* Generated images as the files of MNIST, of which a test has as few as it needs.
 *
 * Threads: any. */
#ifndef TESTS_SUPPORT_DATA_IMAGE_FILES_H
#define TESTS_SUPPORT_DATA_IMAGE_FILES_H

#include <stddef.h>

/* Writes n_train images to train on and n_test to test on, with their labels, into the folder. */
void write_image_files(const char *folder, size_t n_train, size_t n_test);

#endif
